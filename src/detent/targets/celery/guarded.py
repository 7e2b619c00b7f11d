"""The client of a broker that a job names. Imported in a link's thread: it loads Celery, kombu and redis.

Every connection goes to an address that was checked: the socket is made by `_Dial`, for the broker, for the result
backend, and again for each reconnection. So a name cannot lead elsewhere between the check and the connection, and TLS
still verifies the name. Nothing is read from the environment of this process, and what comes from the result backend is
plain JSON: no class is imported, no pickle is loaded.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import redis
from amqp.exceptions import NotFound
from celery import Celery
from kombu import Connection
from kombu.transport import pyamqp
from kombu.transport import redis as redis_transport
from redis.backoff import NoBackoff
from redis.retry import Retry

from detent.domain.celery_rules import CeleryServer
from detent.domain.target_access import TargetRules
from detent.domain.topics import protocol_of
from detent.targets.celery.order import LoginRefusedError, TaskOrder
from detent.targets.celery.sending import ANSWER_SECONDS, CONNECT_SECONDS, TaskProducer
from detent.targets.exceptions import describe
from detent.targets.guard import AddressRefusedError

STATE_KEY = "celery-task-meta-"
DEFAULT_QUEUE = "celery"
# Longer results are not parsed.
LONGEST_STATE = 16 * 1024 * 1024

Credentials = tuple[object, object] | None


class _Dial:
    """Connects to a host at an address that the rules of the tenant allow. `topics/dial.py` does the same on the loop;
    Celery's client blocks, in a thread."""

    def __init__(self, rules: TargetRules, scheme: str) -> None:
        self._rules = rules
        self._protocol = protocol_of(scheme)

    def __call__(self, host: str, port: int) -> socket.socket:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        rules = self._rules.for_protocol(self._protocol, port)
        faults = [rules.fault(str(info[4][0]), port, host) for info in found]
        allowed = [info for info, fault in zip(found, faults, strict=True) if fault is None]
        if not allowed:
            raise AddressRefusedError(next(fault for fault in faults if fault is not None))
        error: OSError | None = None
        for family, kind, protocol, _, address in allowed:
            made = socket.socket(family, kind, protocol)
            try:
                made.settimeout(CONNECT_SECONDS)
                made.connect(address)
            except OSError as failed:
                made.close()
                error = failed
            else:
                return made
        assert error is not None
        raise error


def _redis_connection(dial: _Dial, tls: bool) -> type[redis.Connection]:
    base: type[Any] = redis.SSLConnection if tls else redis.Connection

    class GuardedRedisConnection(base):  # type: ignore[misc] # chosen above
        def _connect(self) -> Any:
            made = dial(self.host, self.port)
            made.settimeout(ANSWER_SECONDS)
            return self._wrap_socket_with_ssl(made) if tls else made

    return GuardedRedisConnection


def _redis_transport(dial: _Dial, tls: bool) -> type:
    connection = _redis_connection(dial, tls)

    class GuardedChannel(redis_transport.Channel):  # type: ignore[misc] # kombu has no types
        def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
            parameters: dict[str, Any] = super()._connparams(asynchronous)
            return {**parameters, "connection_class": connection, "retry": Retry(NoBackoff(), 0)}

    class GuardedTransport(redis_transport.Transport):  # type: ignore[misc]
        Channel = GuardedChannel

    return GuardedTransport


def _amqp_transport(dial: _Dial) -> type:
    class GuardedAmqpConnection(pyamqp.Connection):  # type: ignore[misc]
        def Transport(self, *args: Any, **options: Any) -> Any:  # noqa: N802 - the name that py-amqp has
            made = super().Transport(*args, **options)

            def connect(host: str, port: int, _timeout: float) -> None:
                made.sock = dial(host, port)

            made._connect = connect
            return made

    class GuardedTransport(pyamqp.Transport):  # type: ignore[misc]
        Connection = GuardedAmqpConnection

    return GuardedTransport


class _OwnCelery(Celery):  # type: ignore[misc]
    backend_cls = "disabled"  # not what CELERY_RESULT_BACKEND names


class BrokerClient:
    def __init__(
        self,
        broker: CeleryServer,
        credentials: Credentials,
        backend: CeleryServer | None,
        backend_credentials: Credentials,
        rules: TargetRules,
    ) -> None:
        self.label = broker.label
        self._broker, self._credentials = broker, credentials
        self._rules = rules
        self._dial = _Dial(rules, broker.scheme)
        app = _OwnCelery("detent", loader="app", fixups=set(), set_as_current=False, autofinalize=True)
        app.conf.update(
            task_serializer="json",
            accept_content=["json"],
            task_default_queue=DEFAULT_QUEUE,
            enable_utc=True,
            worker_hijack_root_logger=False,
        )
        self._app = app
        self._producer = TaskProducer(app, self._connection)
        self._declared: set[str] = set()
        self._results = None if backend is None else self._open_results(backend, backend_credentials)

    def _connection(self) -> Any:
        broker = self._broker
        username, password = self._credentials or (None, None)
        redis_like = broker.scheme.startswith("redis")
        options: dict[str, Any] = (
            {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": CONNECT_SECONDS}
            if redis_like
            else {"confirm_publish": True, "read_timeout": ANSWER_SECONDS, "write_timeout": ANSWER_SECONDS}
        )
        return Connection(
            hostname=broker.host,
            port=broker.port,
            userid=username,
            password=password,
            virtual_host=broker.path or ("0" if redis_like else "/"),
            ssl=_tls_options(broker, redis_like=redis_like) if broker.tls else None,
            transport=_redis_transport(self._dial, broker.tls) if redis_like else _amqp_transport(self._dial),
            connect_timeout=CONNECT_SECONDS,
            transport_options=options,
        )

    def _open_results(self, backend: CeleryServer, credentials: Credentials) -> Any:
        username, password = credentials or (None, None)
        pool = redis.ConnectionPool(
            connection_class=_redis_connection(_Dial(self._rules, backend.scheme), backend.tls),
            host=backend.host,
            port=backend.port,
            db=int(backend.path or 0),
            username=username,
            password=password,
            max_connections=1,
            retry=Retry(NoBackoff(), 0),
            **(_tls_options(backend, redis_like=True) if backend.tls else {}),
        )
        return redis.Redis(connection_pool=pool)

    def connect(self) -> None:
        self._producer.open()

    def is_lost(self, error: BaseException) -> bool:
        return self._producer.is_lost(error)

    def follows(self, order: TaskOrder) -> bool:
        return self._results is not None

    def send(self, order: TaskOrder, *, follow: bool) -> None:
        declared: dict[str, Any] = {}
        if not self._broker.scheme.startswith("redis"):
            self._ensure_queue(order.target.queue or DEFAULT_QUEUE)
            declared = {"declare": []}
        self._producer.send(order, follow=follow, **declared)

    def _ensure_queue(self, name: str) -> None:
        """The workers declare their queues, with arguments that are not known here, and a second declaration with
        others is refused. One that does not exist is declared as Celery does."""
        if name in self._declared:
            return
        connection = self._producer.connection
        with connection.channel() as channel:
            try:
                channel.queue_declare(name, passive=True)
            except NotFound:  # which closes the channel
                with connection.channel() as another:
                    self._app.amqp.queues.new_missing(name)(another).declare()
        self._declared.add(name)

    def states(self, task_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        assert self._results is not None
        try:
            raw = self._results.mget([f"{STATE_KEY}{task_id}" for task_id in task_ids])
        except redis.AuthenticationError as error:
            raise LoginRefusedError(describe(error)) from error
        return {task_id: _meta(text) for task_id, text in zip(task_ids, raw, strict=True) if text is not None}

    def revoke(self, task_id: str) -> None:
        self._producer.revoke(task_id)

    def close(self) -> None:
        self._declared.clear()
        self._producer.close()
        if self._results is not None:
            self._results.close()


def _meta(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text) if len(text) <= LONGEST_STATE else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and isinstance(found.get("status"), str):
        return found
    return {"unreadable": "The result of the task is not in Celery's JSON form; use an app to read it."}


def _tls_options(broker: CeleryServer, *, redis_like: bool) -> dict[str, Any]:
    if redis_like:
        return {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
    return {"context": {"check_hostname": True, "purpose": ssl.Purpose.SERVER_AUTH}, "server_hostname": broker.host}
