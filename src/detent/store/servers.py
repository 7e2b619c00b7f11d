"""The servers that this process may use.

A URL may name several servers. One is the primary, and a fail-over makes another one the primary. The old primary may
come back and accept writes, which are lost. Every promotion starts a new timeline, so each process keeps the newest
timeline that it has seen of each system, and refuses a server that is on an older one, or that is a standby.

A process that has just started cannot recognise an old primary. If its URL names several servers, it therefore checks
all of them first, and starts with the newest. It checks them again every few seconds, because an old primary that is
cut off from its successor, but not from this process, continues to accept writes.

A node's own connections are stricter: after it has joined on one timeline, they are refused on any other until it has
joined again, because its runs and tokens belong to that timeline.

One object serves all threads of a process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from detent.errors import Unavailable
from detent.store import sql
from detent.store.connection import Connection

SECONDS_FOR_ONE = 10.0
SECONDS_FOR_EACH = 3.0
LOOK_EVERY = 5.0

REACH = (
    OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, ValueError,
)  # fmt: skip


class DatabaseServer(NamedTuple):
    """A server by its system identifier and timeline; None: it follows another."""

    system: int
    timeline: int | None


class NoConnectionLeft(Unavailable):
    """The server has reached its maximum number of connections."""


class Servers:
    def __init__(self, url: str) -> None:
        self.url = url
        self._addresses = addresses(url)
        self._start = 0
        self._newest: dict[int, int] = {}
        self._joined: DatabaseServer | None = None
        # Increases whenever existing connections may lead to an old primary.
        self.generation = 0
        self._lock = threading.Lock()

    def connector(self, *, node: bool) -> Callable[..., Awaitable[Connection]]:
        """The function with which a pool opens connections; `node`: those that a node uses to fire and claim."""

        async def connect(*_url: object, **options: Any) -> Connection:
            return await self.connect(node=node, **options)

        return connect

    async def connect(self, *, node: bool = False, **options: Any) -> Connection:
        """A connection to the first usable server, starting with the one that was used last."""
        if len(self._addresses) > 1 and not self._newest:
            await self._ask_all(options)
        failures: list[tuple[str, BaseException]] = []
        for number in self._order():
            # Advanced before the attempt, so that after a cancelled attempt the next one starts with another server.
            self._start = number + 1
            try:
                connection = await self._connect(self._addresses[number], node, options)
            except (*REACH, Unavailable) as error:
                failures.append((self._addresses[number], error))
                continue
            self._start = number
            return connection
        raise _none_of(failures)

    async def look_around(self, **options: Any) -> None:
        """Check continuously whether another server was promoted. A single server needs no check."""
        while len(self._addresses) > 1:
            await asyncio.sleep(LOOK_EVERY)
            await self._ask_all(options)

    def join(self, server: DatabaseServer) -> None:
        """The node joins on this server: its connections to another one are no longer valid."""
        with self._lock:
            self.generation += self._joined not in (None, server)
            self._joined = server

    def check(self, server: DatabaseServer, address: str, *, node: bool = False) -> None:
        """Raise Unavailable unless this server may be used; record its timeline."""
        where = f"The server at {place(address)}"
        if server.timeline is None:
            raise Unavailable(f"{where} is in recovery: it follows another one, which is the one to connect to.")
        with self._lock:
            newest = self._newest.get(server.system, 0)
            self._newest[server.system] = max(newest, server.timeline)
            self.generation += 0 < newest < server.timeline
            joined = self._joined if node else None
        if server.timeline < newest:
            raise Unavailable(
                f"{where} is on timeline {server.timeline}, but timeline {newest} has been seen: an old primary came "
                "back, and what is written there is lost; take it out of service, or let it follow the new one."
            )
        if joined is not None and joined != server:
            raise Unavailable(f"{where} is on the new timeline {server.timeline}: this node has to join there first.")

    def _order(self) -> list[int]:
        count = len(self._addresses)
        return [(self._start + step) % count for step in range(count)]

    async def _connect(self, address: str, node: bool, options: dict[str, Any]) -> Connection:
        seconds = SECONDS_FOR_ONE if len(self._addresses) == 1 else SECONDS_FOR_EACH
        connection: Connection = await asyncpg.connect(address, **{**options, "timeout": seconds})
        try:
            self.check(await server_of(connection), address, node=node)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _ask_all(self, options: dict[str, Any]) -> None:
        """Find the newest timeline before any server is used."""
        await asyncio.gather(*(self._ask(number, options) for number in range(len(self._addresses))))

    async def _ask(self, number: int, options: dict[str, Any]) -> None:
        try:
            connection = await self._connect(self._addresses[number], False, options)
        except (*REACH, Unavailable):
            return  # `connect` reports the reason
        connection.terminate()


@cache
def servers_of(url: str) -> Servers:
    """The servers of this URL: one object per URL and process, so that the timelines outlive a connection."""
    return Servers(url)


async def server_of(connection: Connection) -> DatabaseServer:
    (row,) = await connection.fetch(sql.database.READ_SERVER.text)
    return DatabaseServer(row["system_identifier"], row["timeline"])


def addresses(url: str) -> list[str]:
    """One URL for each server that `url` names. `Servers` finds the primary itself."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    several = "," in hosts or "," in query.get("host", "")
    if not several and "target_session_attrs" not in query:
        return [url]
    query.pop("target_session_attrs", None)
    if "host" in query:
        queries = [{**query, **place} for place in _places(url, query)]
        before = url.partition("?")[0]  # urlunsplit would take the slashes of an empty host away
        return [f"{before}?{urlencode(each)}" for each in queries]
    netlocs = [f"{login}{at}{host}" for host in hosts.split(",")]
    return [urlunsplit(parts._replace(netloc=netloc, query=urlencode(query))) for netloc in netlocs]


def _places(url: str, query: dict[str, str]) -> list[dict[str, str]]:
    hosts = query["host"].split(",")
    if "port" not in query:
        return [{"host": host} for host in hosts]
    ports = query["port"].split(",")
    if len(ports) not in (1, len(hosts)):
        raise Unavailable(f"{place(url)} names {len(hosts)} hosts and {len(ports)} ports: give one port for each host.")
    return [{"host": host, "port": ports[number % len(ports)]} for number, host in enumerate(hosts)]


# The error for an unreachable embedded server, by its address: no setting names it.
_embedded: dict[str, str] = {}


def note_embedded(url: str, folder: Path, log: Path) -> None:
    """Let errors about this address name its folder and its log."""
    _embedded[url] = f"The embedded PostgreSQL in {folder} cannot be reached ({{reason}}): its log is {log}."


def unreachable(url: str, error: BaseException) -> Unavailable:
    reason = _reason(error)
    if url in _embedded:
        return Unavailable(_embedded[url].replace("{reason}", reason))
    if "unsupported startup parameter" in reason:
        return Unavailable(
            f"The database at {place(url)} is behind a pooler that passes no settings on ({reason}): "
            "set DETENT_DATABASE_POOLER=transaction, or name the server itself in DETENT_DATABASE_URL."
        )
    return Unavailable(
        f"The database at {place(url)} cannot be reached ({reason}): check DETENT_DATABASE_URL and that it is running."
    )


def place(url: str) -> str:
    """The address of a database, without the password that its URL may contain."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if rest else url


def _none_of(failures: list[tuple[str, BaseException]]) -> Unavailable:
    for address, error in failures:
        if _is_full(error):
            return NoConnectionLeft(
                f"The database server at {place(address)} has no connection left ({_reason(error)}): "
                "raise its max_connections, or end some of those it has."
            )
    if len(failures) == 1:
        address, error = failures[0]
        return error if isinstance(error, Unavailable) else unreachable(address, error)
    reasons = "; ".join(f"{place(address)}: {_reason(error)}" for address, error in failures)
    return Unavailable(f"No server of the database can be used ({reasons}).")


def _is_full(error: BaseException) -> bool:
    """Whether the server has no connection left: by its error code, or by the text of PgBouncer, which has no code."""
    return isinstance(error, asyncpg.TooManyConnectionsError) or "no more connections allowed" in str(error)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
