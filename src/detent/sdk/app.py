"""Jobs in code: `app = Detent()`, `@app.job(cron="0 9 * * MON", timezone="America/New_York")`.

At the start of `detent serve --app package.module:app` every job of the app is registered by name: created if it is
new, updated if it differs. Jobs that the app registered before and no longer has are logged, never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from detent.domain.job import Isolation
from detent.errors import UsageError
from detent.sdk.dependencies import check_dependencies
from detent.sdk.lifecycle import AppLifecycle, Lifespan

if TYPE_CHECKING:
    from detent.sdk.testing import TestMode

Function = TypeVar("Function", bound=Callable[..., Any])


class Detent(AppLifecycle):
    """A collection of jobs and the functions they call."""

    def __init__(self, name: str | None = None, *, lifespan: Lifespan | None = None) -> None:
        super().__init__(lifespan)
        self.name = name
        self.functions: dict[str, Callable[..., Any]] = {}
        self.jobs: list[dict[str, Any]] = []

    def job(
        self,
        *,
        name: str | None = None,
        cron: str | None = None,
        every: str | int | float | timedelta | None = None,
        rrule: str | None = None,
        at: str | datetime | None = None,
        isolate: Isolation = "thread",
        **fields: Any,
    ) -> Callable[[Function], Function]:
        """Register the decorated function and a job that calls it. Other keywords are the fields of a job.

        `isolate="process"`: the function runs in its own process; if that dies, one attempt fails and nothing else.
        """
        schedule = _schedule(cron=cron, every=every, rrule=rrule, at=at)
        return self._register(name, isolate, {"schedule": schedule, **fields})

    def task(
        self, *, name: str | None = None, isolate: Isolation = "thread", **fields: Any
    ) -> Callable[[Function], Function]:
        """Register the decorated function and a task that calls it: a job without a schedule, whose runs are enqueued.
        Other keywords are the fields of a job."""
        return self._register(name, isolate, fields)

    def _register(self, name: str | None, isolate: Isolation, fields: dict[str, Any]) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            reference = self._add(function, None)
            chosen = {} if isolate == "thread" else {"isolate": isolate}
            document = {
                "name": name or _default_name(function),
                "target": {"type": "python", "function": reference, **chosen},
                **fields,
            }
            if any(job["name"] == document["name"] for job in self.jobs):
                raise UsageError(f"This app has two jobs named {document['name']!r}: give one of them another name=.")
            self.jobs.append(document)
            return function

        return register

    def function(self, name: str | None = None) -> Callable[[Function], Function]:
        """Register a function without a job; jobs created elsewhere can call it."""

        def register(function: Function) -> Function:
            self._add(function, name)
            return function

        return register

    def test(self, start: str | datetime | None = None, *, connection: Any = None) -> TestMode:
        """The app in test mode: real schedules and a clock that the test moves, without a database or a server.

            with app.test(start="2026-03-29T00:00:00Z") as t:
                t.advance(hours=3)
            assert [run.status for run in t.runs_of("nightly-report")] == ["succeeded"]

        `start` is the initial time, by default 2026-01-01T00:00:00Z. `connection` is an asyncpg connection of the
        test, for functions that use `run.transaction()`.
        """
        from detent.sdk.testing import TestMode

        return TestMode(self, start, connection)

    def own_functions(self) -> Iterable[Callable[..., Any]]:
        return self.functions.values()

    def _add(self, function: Callable[..., Any], name: str | None) -> str:
        check_dependencies(function)
        reference = name or f"{function.__module__}:{function.__qualname__.replace('<locals>.', '')}"
        if self.functions.setdefault(reference, function) is not function:
            raise UsageError(f"This app has two functions {reference!r}: rename one of them.")
        return reference


def _default_name(function: Callable[..., Any]) -> str:
    return function.__name__.replace("_", "-")


def _schedule(**forms: Any) -> dict[str, Any]:
    given = {form: value for form, value in forms.items() if value is not None}
    if len(given) != 1:
        hint = "" if given else " For a job without a schedule, whose runs are enqueued, use @app.task()."
        raise UsageError(f"A job needs exactly one of cron=, every=, rrule= and at=; {len(given)} were given.{hint}")
    form, value = next(iter(given.items()))
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif isinstance(value, datetime):
        if value.tzinfo is None:
            raise UsageError(
                f"at={value.isoformat()} has no time zone: write at='{value.isoformat()}+00:00' or similar."
            )
        value = value.isoformat()
    return {form: value}
