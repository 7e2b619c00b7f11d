"""Changes of one run: run again, cancel."""

from __future__ import annotations

from collections.abc import Mapping

from detent.api.context import Api
from detent.api.dead_letters import retry_run
from detent.api.runs import cancel_run
from detent.dashboard.changes import ChangeAnswer, Form, FormChange
from detent.domain.states import RunStatus

Names = Mapping[str, str]


async def retry(api: Api, names: Names, form: Form) -> ChangeAnswer:
    reply = await retry_run(api, names["id"])
    return ChangeAnswer(redirect=f"/runs/{reply.value.id}")


async def cancel(api: Api, names: Names, form: Form) -> ChangeAnswer:
    run = (await cancel_run(api, names["id"])).value
    if run.status is RunStatus.CANCELLED:
        return ChangeAnswer("The run is cancelled.")
    return ChangeAnswer("The run is being stopped by its worker.")


changes = (FormChange("/runs/{id}/retry", "operate", retry), FormChange("/runs/{id}/cancel", "operate", cancel))
