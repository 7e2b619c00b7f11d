"""Test mode: what a test calls to move the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from msgspec import UNSET

from detent.domain.documents import utc_instant
from detent.errors import UsageError
from detent.sdk.testing.drive import ClockSteps, drive, drive_async, on_a_loop
from detent.sdk.testing.gateway import TestGateway
from detent.sdk.testing.records import RunLines, TestedRun
from detent.sdk.testing.runs import AppUnderTest

if TYPE_CHECKING:
    from typing import TypeVar

    from detent.sdk.app import Detent
    from detent.sdk.gateway import Gateway

    Answer = TypeVar("Answer")

START = datetime(2026, 1, 1, tzinfo=UTC)
MAX_ATTEMPTS = 100_000


class ClockStep(TypedDict, total=False):
    """How far to move the clock: by some time, or to an instant."""

    days: float
    hours: float
    minutes: float
    seconds: float
    to: str | datetime


class TestMode:
    """An app with a manual clock; created by `Detent.test`, used as a context manager.

    Inside the block, tasks of the app enqueue here, and nowhere else. `runs` are in the order in which they came to be.
    In a test that is itself a coroutine, use `await t.advance_async(…)`, and `async with` if the app has hooks.
    """

    __test__ = False

    def __init__(self, app: Detent, start: str | datetime | None = None, connection: Any = None) -> None:
        self._app = app
        self._tested = AppUnderTest(app, START if start is None else _instant("start", start), connection)
        self._runner = asyncio.Runner()
        self._lines = RunLines(self._tested.by_id)
        self._before: Gateway | None = None
        self._moving = False
        self._awaits_end = False

    # --- for tests ---

    @property
    def now(self) -> datetime:
        """The time of the clock."""
        return self._tested.now

    @property
    def runs(self) -> list[TestedRun]:
        return self._tested.runs

    def advance(self, by: timedelta | None = None, **step: Unpack[ClockStep]) -> list[TestedRun]:
        """Move the clock by some time, or `to` an instant, and run what becomes due; the runs whose time came."""
        return self._drive(self._advance(self._target(by, step)))

    async def advance_async(self, by: timedelta | None = None, **step: Unpack[ClockStep]) -> list[TestedRun]:
        """As `advance`, on the loop of a test that is a coroutine."""
        return await self._drive_async(self._advance(self._target(by, step)))

    def run_pending(self) -> list[TestedRun]:
        """Run what is due now, and what that enqueues without a delay; the clock stays."""
        return self.advance()

    async def run_pending_async(self) -> list[TestedRun]:
        """As `run_pending`, on the loop of a test that is a coroutine."""
        return await self.advance_async()

    def trigger(self, job: str, payload: Any = UNSET) -> TestedRun:
        """Run a job now, in addition to its schedule, perhaps with another payload. If the job has its maximum of
        unfinished runs, the run is pending until one of them has ended."""
        return self._drive(self._trigger(job, payload))

    async def trigger_async(self, job: str, payload: Any = UNSET) -> TestedRun:
        """As `trigger`, on the loop of a test that is a coroutine."""
        return await self._drive_async(self._trigger(job, payload))

    def next_tick(self, job: str) -> datetime | None:
        """When a job ticks next; None when it never will."""
        return self._tested.job(job).next_tick

    def runs_of(self, job: str) -> list[TestedRun]:
        self._tested.job(job)
        return [run for run in self.runs if run.job == job]

    # --- the block ---

    def __enter__(self) -> TestMode:
        self._before = self._app.attach(TestGateway(self._tested))
        self._lines.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            drive(self._close(raises=kind is None), self._runner)
        finally:
            self._leave()

    async def __aenter__(self) -> TestMode:
        self._awaits_end = True
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await drive_async(self._close(raises=kind is None))
        finally:
            self._leave()

    def _close(self, *, raises: bool) -> ClockSteps[None]:
        try:
            yield from self._tested.close()
        except Exception:
            if raises:
                raise

    def _leave(self) -> None:
        self._lines.end()
        self._app.attach(self._before)
        self._runner.close()

    # --- the clock ---

    def _target(self, by: timedelta | None, step: ClockStep) -> datetime:
        to = step.get("to")
        if to is not None and (by is not None or len(step) > 1):
            raise UsageError("advance() was given a time to wait and an instant to go to: give one of the two.")
        length = timedelta(
            step.get("days", 0), step.get("seconds", 0), 0, 0, step.get("minutes", 0), step.get("hours", 0)
        )
        target = self.now + (by or timedelta()) + length if to is None else _instant("to", to)
        if target < self.now:
            raise UsageError(f"The clock is at {self.now.isoformat()} and goes forward only: {target.isoformat()}.")
        return target

    def _advance(self, target: datetime) -> ClockSteps[list[TestedRun]]:
        with self._alone():
            first, happened = len(self._tested.reached), 0
            while (happen := self._tested.next_due(target)) is not None:
                yield from happen()
                happened += 1
                if happened > MAX_ATTEMPTS:
                    raise UsageError(
                        f"More than {MAX_ATTEMPTS} runs on the way to {target.isoformat()}: advance in smaller steps."
                    )
            self._tested.now = target
            return self._tested.reached[first:]

    def _trigger(self, name: str, payload: Any) -> ClockSteps[TestedRun]:
        with self._alone():
            job = self._tested.job(name)
            chosen = {} if payload is UNSET else {"payload": payload}
            run = self._tested.new_on_demand(job, self.now, **chosen)
            yield from self._tested.begin(job, run)
            return run

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._moving:
            raise UsageError("A function cannot move the clock while it runs.")
        self._moving = True
        try:
            yield
        finally:
            self._moving = False

    def _drive(self, steps: ClockSteps[Answer]) -> Answer:
        """Run coroutines on a loop of this test mode; plain functions have run already."""
        if on_a_loop():
            raise UsageError("This test runs on an event loop: use `await t.advance_async(…)` or `trigger_async`.")
        return drive(steps, self._runner)

    async def _drive_async(self, steps: ClockSteps[Answer]) -> Answer:
        if self._tested.served.has_hooks and not self._awaits_end:
            raise UsageError("The app has hooks, which end with this block: write `async with app.test() as t`.")
        return await drive_async(steps)


def _instant(name: str, value: str | datetime) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UsageError(f"{name} is {value!r}: give a time such as 2026-03-29T00:00:00Z.") from error
    if moment.tzinfo is None:
        raise UsageError(f"{name} is {moment.isoformat()}, without a zone: write {moment.isoformat()}Z or an offset.")
    return utc_instant(moment, name)
