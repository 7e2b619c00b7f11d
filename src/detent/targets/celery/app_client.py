"""The client of a Celery app that the operator opened to a tenant (`celery_apps`): its own broker, routes, serializers
and result backend. Imported in a link's thread: it loads the operator's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from detent.errors import UsageError
from detent.targets.celery.order import TaskOrder
from detent.targets.celery.sending import CONNECT_SECONDS, TaskProducer

CONFIRMING = ("amqp", "amqps", "pyamqp")


def load_celery_app(name: str) -> Any:
    """The app `module:attribute`, with the tasks of all its modules and the entries that are added when it is
    finalized, as beat and workers have it. Raises UsageError."""
    from celery import Celery

    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        if isinstance(found, Celery):
            found.loader.import_default_modules()
            found.finalize()
    except (Exception, SystemExit) as error:
        raise UsageError(f"The Celery app {name!r} cannot be loaded ({type(error).__name__}: {error}).") from error
    if not isinstance(found, Celery):
        raise UsageError(f"{name!r} is {type(found).__name__}, not a Celery app; name the Celery object.")
    return found


class AppClient:
    def __init__(self, name: str) -> None:
        self._app = load_celery_app(name)
        self.label = f"the broker of the Celery app {name}"
        self._producer = TaskProducer(self._app, self._connection)
        self._pollable = _is_pollable(self._app.backend)
        if self._pollable:
            # It would subscribe to every task that is sent from this thread. Results are polled here instead.
            self._app.backend.on_task_call = lambda *_args, **_options: None

    def _connection(self) -> Any:
        connection = self._app.connection_for_write(connect_timeout=CONNECT_SECONDS)
        if connection.transport_cls in CONFIRMING:
            connection.transport_options = {**(connection.transport_options or {}), "confirm_publish": True}
        return connection

    def connect(self) -> None:
        self._producer.open()

    def is_lost(self, error: BaseException) -> bool:
        return self._producer.is_lost(error)

    def follows(self, order: TaskOrder) -> bool:
        if order.target.ignore_result or not self._pollable:
            return False
        task = self._app.tasks.get(order.target.task)
        return not (self._app.conf.task_ignore_result if task is None else task.ignore_result)

    def send(self, order: TaskOrder, *, follow: bool) -> None:
        # As beat does. An eager app would execute the task in this process.
        eager = self._app.conf.task_always_eager
        self._producer.send(order, follow=follow, task=None if eager else self._app.tasks.get(order.target.task))

    def states(self, task_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        from celery.backends.base import BaseKeyValueStoreBackend

        backend = self._app.backend
        if isinstance(backend, BaseKeyValueStoreBackend) and type(backend).mget is not BaseKeyValueStoreBackend.mget:
            raw = backend.mget([backend.get_key_for_task(task_id) for task_id in task_ids])
            return {key: backend.decode_result(text) for key, text in zip(task_ids, raw, strict=True) if text}
        found = {task_id: backend.get_task_meta(task_id, cache=False) for task_id in task_ids}
        return {task_id: meta for task_id, meta in found.items() if meta.get("status") != "PENDING"}

    def revoke(self, task_id: str) -> None:
        self._producer.revoke(task_id)

    def close(self) -> None:
        self._producer.close()


def _is_pollable(backend: Any) -> bool:
    """Results of `rpc://` come to the process that sent the task, and are gone with it: they are not followed."""
    from celery.backends.base import DisabledBackend
    from celery.backends.rpc import RPCBackend

    return not isinstance(backend, DisabledBackend | RPCBackend)
