"""Changes of one run: run once more, cancelled."""

from __future__ import annotations

from collections.abc import Mapping

from detent.api.context import Api
from detent.api.dead_letters import retry_run
from detent.api.runs import cancel_run
from detent.dashboard.changes import Answer, Change, Form
from detent.domain.states import RunStatus

Names = Mapping[str, str]


async def retry(api: Api, names: Names, form: Form) -> Answer:
    reply = await retry_run(api, names["id"])
    return Answer(go_to=f"/runs/{reply.value.id}")


async def cancel(api: Api, names: Names, form: Form) -> Answer:
    run = (await cancel_run(api, names["id"])).value
    if run.status is RunStatus.CANCELLED:
        return Answer("The run is cancelled.")
    return Answer("The run was asked to stop: its node ends it.")


changes = (Change("/runs/{id}/retry", "operate", retry), Change("/runs/{id}/cancel", "operate", cancel))
