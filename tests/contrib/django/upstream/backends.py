"""Our backend with what Django's tests ask of the two backends of Django, and nothing that changes what they test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db import connections

from detent.contrib.django import DetentBackend
from tests.support.waiting import until_sync


class QueueOnly(DetentBackend):
    """In the place of DummyBackend, which stores tasks and never runs them: on a database without a worker."""

    def __init__(self, alias: str, params: Any) -> None:
        super().__init__(alias, params)
        self.settings = replace(self.settings, database="quiet")
        self._enqueued: list[str] = []

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self._enqueued.append(result.id)
        return result

    @property
    def results(self) -> list[Any]:
        return [self.get_result(each) for each in self._enqueued]

    def clear(self) -> None:
        self._enqueued.clear()


class RunAtOnce(DetentBackend):
    """In the place of ImmediateBackend, which returns a finished result: it waits for the worker of this process."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        if not connections["default"].in_atomic_block:  # otherwise it runs only after the commit
            until_sync(lambda: self._finished(result), 30, f"{task.module_path} to finish")
        return result

    def _finished(self, result: Any) -> bool:
        result.refresh()
        return bool(result.is_finished)
