"""One task to send: what a call becomes for Celery."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from uuid import UUID, uuid5

from detent.domain.celery_rules import arguments_of
from detent.domain.job import CeleryTarget
from detent.domain.run import Call, Outcome
from detent.domain.target_access import TargetFault
from detent.targets.text import instant_text
from detent.telemetry.tracing import traceparent_of


class RefusedAddress(NamedTuple):
    """Nothing was sent: the rules of the tenant do not allow the address."""

    fault: TargetFault


Reply = Outcome | RefusedAddress


@dataclass(eq=False, slots=True)
class TaskOrder:
    task_id: str
    target: CeleryTarget
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    headers: Mapping[str, str]
    replied: asyncio.Future[Reply] = field(repr=False)
    sent: bool = False

    @property
    def abandoned(self) -> bool:
        """Its call has ended, by a timeout or a cancellation. Read in any thread."""
        return self.replied.cancelled()


class CeleryClient(Protocol):
    """Used in one thread only. Methods raise what the client library raises."""

    label: str

    def follows(self, order: TaskOrder) -> bool:
        """Whether the run ends when the task ends."""
        ...

    def send(self, order: TaskOrder, *, follow: bool) -> None: ...

    def states(self, task_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """What the result backend says about these tasks; tasks without a state are left out."""
        ...

    def revoke(self, task_id: str) -> None: ...

    def close(self) -> None: ...


def order_of(call: Call) -> TaskOrder:
    """Raises TargetError if the payload cannot be arguments."""
    assert isinstance(call.target, CeleryTarget)
    arguments = arguments_of(call.target, call.payload)
    return TaskOrder(
        task_id_of(call),
        call.target,
        arguments.args,
        arguments.kwargs,
        _facts(call),
        asyncio.get_running_loop().create_future(),
    )


def task_id_of(call: Call) -> str:
    """The same when a run is sent again because its node was lost: the task can recognise it, and its state
    is found. Another one for a retry: workers refuse the id of a task that was revoked, and a result backend would
    still have the outcome of the attempt before. Ids of runs are unique in one cluster only, those of jobs everywhere.
    """
    return str(uuid5(UUID(call.job_id), f"{call.run_id}/{call.attempt - call.lost}"))


def _facts(call: Call) -> dict[str, str]:
    """As the headers of an HTTP call."""
    facts = {
        "traceparent": call.traceparent or traceparent_of(call.run_id),
        "Idempotency-Key": call.idempotency_key,
        "Detent-Run-Id": call.run_id,
        "Detent-Job": call.job,
        "Detent-Job-Id": call.job_id,
        "Detent-Scheduled-At": instant_text(call.scheduled_at),
        "Detent-Attempt": str(call.attempt),
        "Detent-Token": str(call.token),
    }
    window_start = call.window_start
    if window_start is not None:
        facts["Detent-Window-Start"] = instant_text(window_start)
        facts["Detent-Window-End"] = instant_text(call.scheduled_at)
    return facts
