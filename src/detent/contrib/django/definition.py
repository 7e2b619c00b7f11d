"""A task of Django with a schedule and the fields of a detent job: `@task(cron="0 9 * * MON", max_retries=5)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from detent.contrib.django.compat import DEFAULT_BACKEND, DEFAULT_PRIORITY, DEFAULT_QUEUE, InvalidTask, Task
from detent.contrib.django.compat import task_backends as backends

Every = str | int | float | timedelta | None


def _not_compared() -> Any:
    """A task is hashed by its fields, and a dictionary has no hash."""
    return field(default_factory=dict, hash=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DetentTask(Task):  # type: ignore[misc]  # Django has no types
    """`call` has the keyword arguments of scheduled calls, `job` other fields of the detent job."""

    cron: str | None = None
    every: Every = None
    timezone: str | None = None
    call_with: Mapping[str, Any] = _not_compared()
    job: Mapping[str, Any] = _not_compared()


def task(
    function: Callable[..., Any] | None = None,
    *,
    cron: str | None = None,
    every: Every = None,
    timezone: str | None = None,
    call_with: Mapping[str, Any] | None = None,
    priority: int = DEFAULT_PRIORITY,
    queue_name: str = DEFAULT_QUEUE,
    backend: str = DEFAULT_BACKEND,
    takes_context: bool = False,
    **job: Any,
) -> Any:
    """As Django's own decorator, which it can replace, with a schedule and any other field of a detent job.

    `cron` and `timezone`, or `every` (seconds, a timedelta, or text such as "10m"), make it a scheduled task, called
    with the keyword arguments in `call_with`. Without a schedule, all that remains are job fields such as
    `max_retries` or `timeout_seconds`.
    """

    def decorate(decorated: Callable[..., Any]) -> Any:
        kind = backends[backend].task_class
        common = {
            "func": decorated,
            "priority": priority,
            "queue_name": queue_name,
            "backend": backend,
            "takes_context": takes_context,
            "run_after": None,
        }
        if issubclass(kind, DetentTask):
            own = {"cron": cron, "every": every, "timezone": timezone, "call_with": dict(call_with or {}), "job": job}
            return kind(**common, **own)
        if cron is not None or every is not None:
            raise InvalidTask(
                f"{decorated.__module__}.{decorated.__qualname__} has a schedule, and the backend {backend!r} in TASKS "
                "cannot run one: give backend= the alias of a detent.contrib.django.DetentBackend."
            )
        return kind(**common)  # another backend, such as the immediate one in tests: it has no use for the other fields

    return decorate if function is None else decorate(function)
