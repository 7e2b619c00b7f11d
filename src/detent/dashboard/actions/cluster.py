"""Nodes asked to hand over, and the one switch for all ticks."""

from __future__ import annotations

from collections.abc import Mapping

from detent.api.cluster import dismiss_node, drain_node, resume_node
from detent.api.cluster_pause import HoldRequest, pause_all, resume_all
from detent.api.context import Api
from detent.dashboard.changes import Answer, Change, Form, text_of
from detent.errors import UsageError

Names = Mapping[str, str]


async def drain(api: Api, names: Names, form: Form) -> Answer:
    node = await drain_node(api, names["id"])
    return Answer(f"Node {node.id} hands over what it leads and finishes what it runs.")


async def undrain(api: Api, names: Names, form: Form) -> Answer:
    node = await resume_node(api, names["id"])
    return Answer(f"Node {node.id} takes part again.")


async def dismiss(api: Api, names: Names, form: Form) -> Answer:
    node = await dismiss_node(api, names["id"])
    return Answer(f"Node {node.id} is no longer among the problems.")


async def hold(api: Api, names: Names, form: Form) -> Answer:
    reason = text_of(form, "reason")
    if not reason:
        raise UsageError("There is no reason: say why nothing is to fire, for whoever looks at it.", "/reason")
    await pause_all(api, HoldRequest(reason))
    return Answer("No tick of any job fires until you resume.")


async def let_go(api: Api, names: Names, form: Form) -> Answer:
    await resume_all(api)
    return Answer("Ticks fire again.")


changes = (
    Change("/cluster/nodes/{id}/drain", "admin", drain),
    Change("/cluster/nodes/{id}/resume", "admin", undrain),
    Change("/cluster/nodes/{id}/dismiss", "admin", dismiss),
    Change("/cluster/pause", "admin", hold),
    Change("/cluster/resume", "admin", let_go),
)
