"""What a worker serves, for the person or the log that watches it start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from detent.sdk.app import Detent
from detent.settings.settings import Settings

MAX_LINES = 20
ON_DEMAND = "on demand"


class ServedFunction(NamedTuple):
    """A function of the app, and the job or task that calls it; without one, jobs that are created elsewhere do."""

    job: str | None
    when: str
    function: str
    queue: str | None


class ServedWork(NamedTuple):
    """What a worker serves: functions of an app, kinds of targets, and queues."""

    app: str | None
    functions: Sequence[ServedFunction]
    targets: Sequence[str]
    queues: Sequence[str]
    concurrency: int

    def lines(self) -> Iterator[str]:
        """For a terminal."""
        if self.app is not None:
            count = len(self.functions)
            yield f"App   {self.app}, with {count} {'function' if count == 1 else 'functions'}:"
            yield from _table(self.functions[:MAX_LINES])
            if count > MAX_LINES:
                yield f"      and {count - MAX_LINES} more"
        if lacking := self.unserved_queues():
            named = "; ".join(f"{queue} ({', '.join(jobs)})" for queue, jobs in lacking.items())
            options = "".join(f" --queue {queue}" for queue in (*self.queues, *lacking))
            queues = f"the {_queues(list(lacking))} {named}"
            yield f"Not served by this worker: {queues}. Start it with{options} to serve all."
        queues = f"{_queues(self.queues)} {_listed(self.queues)}"
        yield f"Runs  {_listed(self.targets)} jobs of the {queues}, at most {self.concurrency} at the same time."

    def unserved_queues(self) -> dict[str, list[str]]:
        """The other queues of the app's jobs, each with its jobs: other workers must serve them."""
        found: dict[str, list[str]] = {}
        for each in self.functions:
            if each.job is not None and each.queue is not None and each.queue not in self.queues:
                found.setdefault(each.queue, []).append(each.job)
        return found

    def fields(self) -> dict[str, Any]:
        """For one line of the log."""
        shown = [f"{each.job or each.function} ({each.when})" for each in self.functions[:MAX_LINES]]
        more = {"more_jobs": len(self.functions) - MAX_LINES} if len(self.functions) > MAX_LINES else {}
        named = {} if self.app is None else {"app": self.app, "jobs": shown, **more}
        if lacking := self.unserved_queues():
            named["queues_not_served"] = list(lacking)
        return {
            **named, "targets": list(self.targets), "queues": list(self.queues), "concurrency": self.concurrency
        }  # fmt: skip


def served_work(
    settings: Settings, roles: Sequence[str], app: Detent | None, targets: Sequence[str]
) -> ServedWork | None:
    """`targets`: the kinds that the process can call. A worker without an app has no Python functions. None: the worker
    is a part of a server, and calls HTTP targets only."""
    if "worker" not in roles or (app is None and len(roles) > 1):
        return None
    kinds = [kind for kind in targets if kind != "python" or app is not None]
    functions = [] if app is None else list(_functions(app))
    return ServedWork(None if app is None else app.name, functions, kinds, settings.queues, settings.concurrency)


def _functions(app: Detent) -> Iterator[ServedFunction]:
    called = set()
    for job in (*app.jobs, *app.known_jobs):
        function = str(job["target"].get("function", ""))
        called.add(function)
        yield ServedFunction(job["name"], _when(job), function, job.get("queue") or "default")
    for name in app.functions:
        if name not in called:
            yield ServedFunction(None, "for jobs that name it", name, None)


def _when(job: Mapping[str, Any]) -> str:
    schedule = job.get("schedule")
    if schedule is None:
        return ON_DEMAND
    if not isinstance(schedule, Mapping):
        return str(schedule)
    form, value = next(iter(schedule.items()))
    zone = f" {job['timezone']}" if job.get("timezone") else ""
    if form == "every":
        return f"every {value:g} s" if isinstance(value, int | float) else f"every {value}"
    return f"{'' if form == 'cron' else f'{form} '}{value}{zone}"


def _table(functions: Sequence[ServedFunction]) -> Iterator[str]:
    rows = [(each.job or "-", each.when, each.function, each.queue and f"queue {each.queue}") for each in functions]
    widths = [max((len(row[column] or "") for row in rows), default=0) for column in range(4)]
    for row in rows:
        cells = [(cell or "").ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield f"      {'   '.join(cells)}".rstrip()


def _queues(names: Sequence[str]) -> str:
    return "queue" if len(names) == 1 else "queues"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
