"""The backend: `TASKS = {"default": {"BACKEND": "detent.contrib.django.DetentBackend"}}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from detent.contrib.django import registry
from detent.contrib.django.compat import (
    BaseTaskBackend,
    InvalidTaskBackend,
    TaskResult,
    TaskResultStatus,
    task_enqueued,
)
from detent.contrib.django.definition import DetentTask
from detent.contrib.django.enqueuing import enqueue
from detent.contrib.django.options import BackendOptions
from detent.contrib.django.results import read_result


class DetentBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    task_class = DetentTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        try:
            self.settings = BackendOptions.read(self.options)
        except ValueError as error:
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: {error}") from error

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        registry.add(self.alias, task, self.settings)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """In the current transaction of Django's connection: the run exists if that commits, and never otherwise."""
        self.validate_task(task)
        result = TaskResult(
            task=task, id="", status=TaskResultStatus.READY, enqueued_at=None, started_at=None, finished_at=None,
            last_attempted_at=None, args=list(args), kwargs=dict(kwargs), backend=self.alias, errors=[], worker_ids=[],
        )  # fmt: skip
        run, enqueued_at = enqueue(self, task, {"args": result.args, "kwargs": result.kwargs})
        object.__setattr__(result, "id", str(run))  # a result is frozen, and its id is known only now
        object.__setattr__(result, "enqueued_at", enqueued_at)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        return read_result(self, result_id)

    def check(self, **kwargs: Any) -> Iterable[Any]:
        from detent.contrib.django.checks import check_backend

        return [*super().check(**kwargs), *check_backend(self)]
