"""A task of Django with a schedule and the fields of a detent job: `@task(cron="0 9 * * MON", max_retries=5)`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Unpack, overload

from detent.contrib.django.compat import DEFAULT_BACKEND, DEFAULT_PRIORITY, DEFAULT_QUEUE, InvalidTask, Task
from detent.contrib.django.compat import task_backends as backends
from detent.contrib.django.typed import ContextDecorator, P, R, TaskDecorator, TypedTask
from detent.sdk.fields import JobFields

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


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> TypedTask[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> TypedTask[P, R]: ...
@overload
def task(
    *,
    cron: str | None = None,
    every: Every = None,
    call_with: Mapping[str, Any] | None = None,
    queue_name: str = DEFAULT_QUEUE,
    backend: str = DEFAULT_BACKEND,
    takes_context: Literal[False] = False,
    isolate: Literal["thread", "process"] = "thread",
    **fields: Unpack[JobFields],
) -> TaskDecorator: ...
@overload
def task(
    *,
    cron: str | None = None,
    every: Every = None,
    call_with: Mapping[str, Any] | None = None,
    queue_name: str = DEFAULT_QUEUE,
    backend: str = DEFAULT_BACKEND,
    takes_context: Literal[True],
    isolate: Literal["thread", "process"] = "thread",
    **fields: Unpack[JobFields],
) -> ContextDecorator: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    cron: str | None = None,
    every: Every = None,
    call_with: Mapping[str, Any] | None = None,
    queue_name: str = DEFAULT_QUEUE,
    backend: str = DEFAULT_BACKEND,
    takes_context: bool = False,
    isolate: Literal["thread", "process"] = "thread",
    **fields: Unpack[JobFields],
) -> Any:
    """As Django's own decorator, which it can replace, with a schedule and any other field of a detent job.

    `cron` and `timezone`, or `every` (seconds, a timedelta, or text such as "10m"), make it a scheduled task, called
    with the keyword arguments in `call_with`. `isolate="process"` runs it in a process of its own.
    """
    job = dict(fields)
    priority, timezone = job.pop("priority", DEFAULT_PRIORITY), job.pop("timezone", None)
    if isolate != "thread":
        job["isolate"] = isolate

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
            _check_alias(decorated, backend)
        return kind(**common)

    return decorate if function is None else decorate(function)


def _check_alias(decorated: Callable[..., Any], backend: str) -> None:
    """Other backends have no schedules, and the immediate one in tests must not ask for any. Where another alias is of
    detent, the schedule would be lost by mistake."""
    from detent.contrib.django.setup import detent_backends

    if found := detent_backends():
        raise InvalidTask(
            f"{decorated.__module__}.{decorated.__qualname__} has a schedule, and the backend {backend!r} in TASKS "
            f"cannot run one: give backend={next(iter(found))!r}."
        )
