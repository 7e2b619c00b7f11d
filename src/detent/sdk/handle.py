"""A run that was enqueued, as its caller sees it: its status, its result, and its end by request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from detent.errors import NotFound, RunFailed, Unavailable, UsageError
from detent.sdk.portal import portal

if TYPE_CHECKING:
    from detent.contract.run import Run
    from detent.domain.states import RunStatus
    from detent.sdk.gateway import Gateway

Result_co = TypeVar("Result_co", covariant=True)

FIRST_POLL_SECONDS = 0.02
SLOWEST_POLL_SECONDS = 1.0
POLL_GROWTH = 1.5
UNREACHABLE_SECONDS = 30.0
"""How long a wait goes on while the cluster cannot be reached."""
LEAST_SECONDS = 1.0
"""However little time is left, one question gets this much to be answered."""


class RunReference(Generic[Result_co]):
    """What both handles know. `created` is False if an unfinished run has the unique key: then it is that run."""

    def __init__(
        self,
        run_id: str | UUID,
        gateway: Callable[[], Gateway],
        read: Callable[[Any], Any],
        *,
        created: bool = True,
        joined: bool = False,
    ) -> None:
        self.id = str(run_id)
        self.created = created
        self._gateway = gateway
        self._read = read
        self._joined = joined

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def _found(self) -> Run:
        import msgspec

        try:
            run = await self._gateway().run(UUID(self.id))
        except NotFound as error:
            if not self._joined:
                raise
            raise NotFound(
                f"There is no run {self.id}: the transaction that enqueued it has not committed, or was rolled back."
            ) from error
        stored: Any = run.result  # the database has it as text, the API sends it as it is
        if isinstance(stored, msgspec.Raw):
            run = msgspec.structs.replace(run, result=msgspec.json.decode(stored or b"null"))
        return run

    async def _cancelled(self) -> None:
        await self._gateway().cancel(UUID(self.id))

    async def _finished(self, timeout: float | None) -> Run:
        from detent.domain.states import OPEN

        clock = asyncio.get_running_loop().time
        deadline = None if timeout is None else clock() + timeout
        pause, answered, status, waits = FIRST_POLL_SECONDS, clock(), "unknown", "."
        while True:
            try:
                async with asyncio.timeout_at(None if deadline is None else max(deadline, clock() + LEAST_SECONDS)):
                    run = await self._found()
                answered, status = clock(), str(run.status)
                waits = f". {run.waiting_for}" if run.waiting_for else "."
                if run.status not in OPEN:
                    return run
                if self._gateway().in_memory:
                    raise UsageError(
                        f"Run {self.id} is {status}, and only the test runs it: call t.run_pending() or t.advance(…)."
                    )
            except TimeoutError:  # the time is over, and a question has no answer
                if deadline is None:
                    raise
            except Unavailable:  # a node restarts, a database fails over
                if clock() - answered > UNREACHABLE_SECONDS:
                    raise
            left = pause if deadline is None else deadline - clock()
            if left <= 0:
                raise TimeoutError(f"Run {self.id} has not finished within {timeout:g} s: it is {status}{waits}")
            await asyncio.sleep(min(pause, left))
            pause = min(pause * POLL_GROWTH, SLOWEST_POLL_SECONDS)

    async def _result(self, timeout: float | None) -> Any:
        run = await self._finished(timeout)
        if run.status != "succeeded":
            raise failed_run(run)
        value: Any = run.result
        if isinstance(value, dict) and value.get("truncated") is True and value.keys() == {"truncated", "beginning"}:
            raise RunFailed(
                f"Run {self.id} succeeded, and its result was too long to be stored: return a reference to it, or "
                "raise --max-result-bytes on the workers.",
                status="succeeded",
            )
        return self._read(value)


class Handle(RunReference[Result_co]):
    """A run, for coroutines."""

    async def status(self) -> RunStatus:
        return (await portal.run(self._found)).status

    async def run(self) -> Run:
        """Everything that is known of it: attempts, times, error."""
        return await portal.run(self._found)

    async def result(self, timeout: float | None = None) -> Result_co:
        """Wait for its end, and return what the function returned. Raises RunFailed if it did not succeed, and
        TimeoutError if it is unfinished after `timeout` seconds."""
        value: Result_co = await portal.run(_with(self._result, timeout))
        return value

    async def cancel(self) -> None:
        """Cancel it, or ask its worker to stop it. Raises Conflict if it has finished."""
        await portal.run(self._cancelled)


class BlockingHandle(RunReference[Result_co]):
    """A run, for plain functions."""

    def status(self) -> RunStatus:
        return portal.block(self._found).status

    def run(self) -> Run:
        """Everything that is known of it: attempts, times, error."""
        return portal.block(self._found)

    def result(self, timeout: float | None = None) -> Result_co:
        """As `Handle.result`, and waits in this thread."""
        value: Result_co = portal.block(_with(self._result, timeout))
        return value

    def cancel(self) -> None:
        """Cancel it, or ask its worker to stop it. Raises Conflict if it has finished."""
        portal.block(self._cancelled)


def failed_run(run: Run) -> RunFailed:
    last = next((each for each in reversed(run.attempts) if each.error), None)
    error = run.error or (last.error if last is not None else None)
    reason = run.reason if run.status != "dead" else error or run.reason
    traceback = getattr(last, "traceback", None) or None
    words = f"Run {run.id} of {run.job} is {run.status}{f': {reason}' if reason else ''}"
    return RunFailed(
        words if words.endswith(".") else f"{words}.", status=str(run.status), error=error, traceback=traceback
    )


def _with(
    work: Callable[[float | None], Coroutine[Any, Any, Any]], timeout: float | None
) -> Callable[[], Coroutine[Any, Any, Any]]:
    return lambda: work(timeout)
