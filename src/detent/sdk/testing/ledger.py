"""Steps and effects in test mode: as on a worker, in memory, by the clock of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from detent.domain.effects import NewStep, OnceKey
from detent.errors import UsageError

Result = TypeVar("Result")


class TestLedger:
    """What the runs of an app have done."""

    __test__ = False

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._steps: dict[str, dict[str, str | None]] = {}
        self._marks: dict[tuple[str, str], datetime] = {}

    def steps(self, run_id: str) -> dict[str, str | None]:
        return dict(self._steps.get(run_id, {}))

    def add_step(self, run_id: str, step: NewStep) -> None:
        self._steps.setdefault(run_id, {})[step.name] = step.result

    def forget_steps(self, run_id: str) -> None:
        self._steps.pop(run_id, None)

    @asynccontextmanager
    async def once(self, job: str, once: OnceKey, connection: Any) -> AsyncIterator[Any]:
        mark = ("" if once.shared else job, once.key)
        kept = self._marks.get(mark)
        if kept is not None and kept > self._now():
            yield None
        elif connection is None:
            yield NoConnection()
            self._marks[mark] = self._now() + once.kept_for
        else:
            async with connection.transaction():
                yield connection
            self._marks[mark] = self._now() + once.kept_for


class NoConnection:
    """Stands for the connection of an effect whose test has none: an effect elsewhere does not need it."""

    def __getattr__(self, name: str) -> Any:
        raise UsageError(
            "The connection of run.once has no database in test mode: pass one with app.test(connection=connection), "
            "or test this function by itself."
        )


def wait_at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """Nothing in memory waits. A connection does, and belongs to the loop of the test."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    work.close()
    raise UsageError("A plain function has no connection in test mode: test it by itself, or make it a coroutine.")
