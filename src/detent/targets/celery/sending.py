"""Sending and revoking with Celery's client, for both kinds of apps. Imported in a link's thread: it loads Celery."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from amqp.exceptions import AccessRefused, NotAllowed
from kombu.exceptions import OperationalError

from detent.runtime.amqp_refusals import is_passing
from detent.targets.celery.order import LoginRefusedError, TaskOrder
from detent.targets.exceptions import describe

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0

# `NotAllowed`: the user may not use the virtual host, or it does not exist.
_login_refused: tuple[type[Exception], ...] = (AccessRefused, NotAllowed)
with suppress(ImportError):  # the brokers of the apps may all be others
    from redis.exceptions import AuthenticationError

    _login_refused += (AuthenticationError,)


class TaskProducer:
    """One connection of an app to its broker, opened when something is sent."""

    def __init__(self, app: Any, connect: Callable[[], Any]) -> None:
        self._app = app
        self._connect = connect
        self._connection: Any = None
        self._producer: Any = None

    def open(self) -> Any:
        """The producer. A publish on an amqp connection returns when the broker has confirmed it."""
        if self._producer is None:
            self._connection = self._connect()
            try:
                # Without its pause of 2 s between two tries: the job has its own retries.
                self._connection.ensure_connection(max_retries=1, interval_start=0, reraise_as_library_errors=False)
            except _login_refused as error:
                if isinstance(error, NotAllowed) and is_passing(str(error)):
                    raise
                raise LoginRefusedError(describe(error)) from error
            self._producer = self._app.amqp.Producer(self._connection)
        return self._producer

    def is_lost(self, error: BaseException) -> bool:
        known = () if self._connection is None else self._connection.connection_errors
        return isinstance(error, (OSError, OperationalError, *known))

    @property
    def connection(self) -> Any:
        self.open()
        return self._connection

    def send(self, order: TaskOrder, *, follow: bool, task: Any = None, **options: Any) -> None:
        """`task`: as the app has registered it, with the options of its own."""
        target = order.target
        chosen = {"queue": target.queue, "priority": target.priority, "expires": target.expires}
        options |= {name: value for name, value in chosen.items() if value is not None}
        options |= {
            "task_id": order.task_id,
            "headers": dict(order.headers),
            "ignore_result": not follow,
            "retry": False,  # the job has its own retries
            "producer": self.open(),
            "add_to_parent": False,
        }
        args, kwargs = list(order.args), dict(order.kwargs)
        if task is None:
            self._app.send_task(target.task, args, kwargs, **options)
        else:
            task.apply_async(args, kwargs, **options)

    def revoke(self, task_id: str) -> None:
        """Workers that execute it end it; the others discard it when it arrives."""
        mailbox = self._app.control.mailbox(self.connection)
        mailbox.producer_pool = None  # else it opens another connection, by the settings of the app
        mailbox.abcast("revoke", {"task_id": task_id, "terminate": True, "signal": "SIGTERM"})

    def close(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.release()
