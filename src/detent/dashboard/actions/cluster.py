"""Drain, resume and dismiss nodes; pause and resume all ticks."""

from __future__ import annotations

from collections.abc import Mapping

from detent.api.cluster import dismiss_node, drain_node, resume_node
from detent.api.cluster_pause import HoldRequest, pause_all, resume_all
from detent.api.context import Api
from detent.dashboard.changes import ChangeAnswer, Form, FormChange, text_of
from detent.errors import UsageError

Names = Mapping[str, str]


async def drain(api: Api, names: Names, form: Form) -> ChangeAnswer:
    node = await drain_node(api, names["id"])
    return ChangeAnswer(f"Node {node.id} is draining: it hands over its partitions and finishes its runs.")


async def undrain(api: Api, names: Names, form: Form) -> ChangeAnswer:
    node = await resume_node(api, names["id"])
    return ChangeAnswer(f"Node {node.id} is resumed.")


async def dismiss(api: Api, names: Names, form: Form) -> ChangeAnswer:
    node = await dismiss_node(api, names["id"])
    return ChangeAnswer(f"The problem of node {node.id} is dismissed.")


async def hold(api: Api, names: Names, form: Form) -> ChangeAnswer:
    reason = text_of(form, "reason")
    if not reason:
        raise UsageError("The reason is missing: say why all ticks are paused.", "/reason")
    await pause_all(api, HoldRequest(reason))
    return ChangeAnswer("All ticks are paused: none fires until you resume.")


async def unhold(api: Api, names: Names, form: Form) -> ChangeAnswer:
    await resume_all(api)
    return ChangeAnswer("Resumed: ticks fire again.")


changes = (
    FormChange("/cluster/nodes/{id}/drain", "admin", drain),
    FormChange("/cluster/nodes/{id}/resume", "admin", undrain),
    FormChange("/cluster/nodes/{id}/dismiss", "admin", dismiss),
    FormChange("/cluster/pause", "admin", hold),
    FormChange("/cluster/resume", "admin", unhold),
)
