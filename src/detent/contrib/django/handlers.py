"""What the worker calls for a run of a task: the task's function, with Django's signals and connections around it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import InterfaceError, OperationalError, close_old_connections, connections
from django.utils import timezone

from detent.contrib.django import registry
from detent.contrib.django.compat import (
    TaskContext,
    TaskError,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from detent.domain.job import JobSpec
from detent.domain.registration import read_document
from detent.errors import Discard, NotRetryable
from detent.targets.exceptions import failure_of
from detent.targets.run import HandlerRun
from detent.worker.execute import is_retryable

if TYPE_CHECKING:
    from detent.contrib.django.backend import DetentBackend


class TaskHandler:
    """The calls of one task. `max_result_bytes`: a longer result would be stored truncated, and is refused instead."""

    def __init__(self, backend: DetentBackend, task: Any, max_result_bytes: int) -> None:
        self.task = task
        self._backend = backend
        self._spec: JobSpec = read_document(registry.document_of(task, backend.settings))
        self._max_result_bytes = max_result_bytes

    @property
    def function(self) -> Callable[[HandlerRun], Any]:
        """The worker runs coroutines on a loop and plain functions in threads, and asks the function which it is."""
        return self._coroutine() if iscoroutinefunction(self.task.func) else self._plain()

    def _plain(self) -> Callable[[HandlerRun], Any]:
        def call(run: HandlerRun) -> Any:
            close_old_connections()
            try:
                return self._call(run)
            finally:
                close_old_connections()

        return call

    def _call(self, run: HandlerRun) -> Any:
        result = self._begin(run)
        try:
            return self._succeed(result, self.task.func(*self._arguments(result), **result.kwargs))
        except BaseException as error:
            self._fail(result, run, error)
            raise

    def _coroutine(self) -> Callable[[HandlerRun], Awaitable[Any]]:
        async def call(run: HandlerRun) -> Any:
            result = await sync_to_async(self._begin)(run)
            # A thread of its own for the queries of this run, as Django has it for a request: one run does not wait
            # for the queries of another.
            async with ThreadSensitiveContext():
                try:
                    returned = await self.task.func(*self._arguments(result), **result.kwargs)
                    return await sync_to_async(self._succeed)(result, returned)
                except BaseException as error:
                    trace = error.__traceback__
                    await sync_to_async(self._fail)(result, run, error)  # receivers may query, or be coroutines
                    error.__traceback__ = trace  # without the frames of the other thread
                    raise
                finally:
                    await sync_to_async(connections.close_all)()

        return call

    def _arguments(self, result: Any) -> list[Any]:
        return [TaskContext(task_result=result), *result.args] if self.task.takes_context else list(result.args)

    def _begin(self, run: HandlerRun) -> Any:
        result = self._read(run)
        now = timezone.now()
        _set(result, status=TaskResultStatus.RUNNING, started_at=result.started_at or now, last_attempted_at=now)
        task_started.send_robust(type(self._backend), task_result=result)
        return result

    def _read(self, run: HandlerRun) -> Any:
        """The first query of a run. A connection that the server closed meanwhile must not fail the run."""
        try:
            return self._backend.get_result(run.id)
        except (OperationalError, InterfaceError):
            connections[self._backend.settings.database].close()
            return self._backend.get_result(run.id)

    def _succeed(self, result: Any, returned: Any) -> Any:
        value = normalize_json(returned)
        size = len(json.dumps(value))
        if size > self._max_result_bytes:
            raise NotRetryable(
                f"The return value of {self.task.module_path} has {size:,} characters as JSON, and this worker keeps "
                f"at most {self._max_result_bytes:,}: return less, or raise the setting max_result_bytes."
            )
        _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
        task_finished.send_robust(type(self._backend), task_result=result)
        return value

    def _fail(self, result: Any, run: HandlerRun, error: BaseException) -> None:
        """Sent inside the exception handler, where Django's receivers look for the exception. An attempt that is
        followed by another does not finish the task."""
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        result.errors.append(TaskError(exception_class_path=path, traceback="".join(format_exception(error))))
        if self._is_retried(run, error):
            _set(result, status=TaskResultStatus.READY)
            return
        _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
        task_finished.send_robust(type(self._backend), task_result=result)

    def _is_retried(self, run: HandlerRun, error: BaseException) -> bool:
        if isinstance(error, Discard) or self._spec.delivery == "at_most_once" or run.attempt > self._spec.max_retries:
            return False
        return is_retryable(self._spec, failure_of(error))


def _set(result: Any, **values: Any) -> None:
    """A result of Django is frozen, and Django changes it in this way too."""
    for name, value in values.items():
        object.__setattr__(result, name, value)
