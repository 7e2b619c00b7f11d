"""One task to send: what a call becomes for Celery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from uuid import UUID, uuid5

from detent.domain.celery_rules import arguments_of
from detent.domain.job import CeleryTarget
from detent.domain.run import Call, Outcome
from detent.domain.target_access import TargetFault
from detent.targets.breaker import Unanswered
from detent.targets.facts import fact_headers
from detent.telemetry.tracing import traceparent_of


class RefusedAddress(NamedTuple):
    """Nothing was sent: the rules of the tenant do not allow the address."""

    fault: TargetFault


class LoginRefusedError(Exception):
    """The broker or the result backend refused the credentials. No retry helps."""


Reply = Outcome | RefusedAddress | Unanswered


def _nothing() -> None: ...


@dataclass(eq=False, slots=True)
class TaskOrder:
    task_id: str
    target: CeleryTarget
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    headers: Mapping[str, str]
    replied: asyncio.Future[Reply] = field(repr=False)
    taken: Callable[[], None] = _nothing
    """Called on the loop when the broker has the task, if its run ends later."""
    revoke: bool = False
    """Whether its task is to end, once nothing waits for its reply."""

    @property
    def abandoned(self) -> bool:
        """Its call has ended, by a timeout or a cancellation. Read in any thread."""
        return self.replied.cancelled()


class CeleryClient(Protocol):
    """Used in one thread only. Methods raise what the client library raises, and LoginRefusedError."""

    label: str

    def connect(self) -> None:
        """To the broker, unless it is connected."""
        ...

    def is_lost(self, error: BaseException) -> bool:
        """Whether a task was not sent because the connection to the broker broke."""
        ...

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
    """The same when a run is sent again because its node was lost: tasks can recognise it, and its state is
    found. Another one for a retry: workers refuse the id of a task that was revoked, and a result backend would
    still have the outcome of the attempt before. Ids of runs are unique in one cluster only, those of jobs everywhere.
    """
    return str(uuid5(UUID(call.job_id), f"{call.run_id}/{call.attempt - call.lost}"))


def _facts(call: Call) -> dict[str, str]:
    """As the headers of an HTTP call; those of a task are JSON, which has any text."""
    traceparent = call.traceparent or traceparent_of(call.run_id)
    facts = {"traceparent": traceparent, **fact_headers(call)}
    return facts | {"Idempotency-Key": call.idempotency_key, "Detent-Job": call.job}
