"""The only module that sends statements: connections with their limits, and driver errors by meaning.

Every connection carries server-side limits below half of the lease's time to live (`limits.py`), because a leader that
is paused in the middle of a transaction would otherwise block its own successor forever. The planner settings are
necessary: a generic plan made while a queue table was empty is a sequential scan, and cost 95 % of the throughput when
measured. A pooler passes no settings on, so `pooler.py` sets both in another way.

A failed write is one of four things, and callers treat them differently:

    LockTimeout      not applied; a row or a key is taken, or the batch was too large; try less, or go around that row
    Rejected         not applied; the data broke a constraint; bisect the batch and set the culprit aside
    Unavailable      not applied; the server cannot serve now; try again later
    OutcomeUnknown   perhaps applied: the reply was lost; read before doing anything again
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import datetime
from typing import TypeVar

import asyncpg

from detent.errors import DetentError, Unavailable
from detent.runtime import failpoints
from detent.store import pooler, sql
from detent.store.connection import Connection
from detent.store.connection import Row as Row
from detent.store.connection_settings import driver_options
from detent.store.limits import DEFAULT_TTL, STANDARD, StatementLimits, milliseconds, pool_limits
from detent.store.limits import PoolName as PoolName
from detent.store.pool import Pool
from detent.store.servers import servers_of
from detent.store.servers import unreachable as unreachable
from detent.store.statement import Statement
from detent.store.tenant_wall import TenantWall
from detent.telemetry.log import logger

log = logger("store")

# How long to wait while all connections of a pool are in use.
CONNECTION_SECONDS = 4.0
# How many missing partitions of history one statement may run into: each is added, and the statement tried again. One
# that cancels on-demand runs may need each day of the year to come.
MAX_MISSING_PARTITIONS = 400
# How many connections each pool may have, and after how many seconds without use it closes all but one. The node's own
# pools keep their connections: when other clients have taken all that the server has, the node can go on.
Sizes = Mapping[PoolName, tuple[int, float]]
POOLS: Sizes = {
    PoolName.FIRE: (2, 0.0),
    PoolName.SETTLE: (2, 0.0),
    PoolName.WORK: (3, 0.0),
    PoolName.FAILOVER: (1, 0.0),
    PoolName.REQUEST: (5, 60.0),
    PoolName.SEPARATE: (2, 60.0),
    PoolName.PULL: (3, 60.0),
    PoolName.OUTPUT: (1, 60.0),
}
FOR_REQUESTS = frozenset({PoolName.REQUEST, PoolName.SEPARATE})
WALLED = FOR_REQUESTS | {PoolName.PULL}
# Most processes serve no worker that pulls, and many run nothing that writes lines.
OPENED_LATER = frozenset({PoolName.PULL, PoolName.OUTPUT})

Result = TypeVar("Result")

HISTORY = ("run_history", "attempts", "run_logs")
_VALUE = re.compile(r"\((\d{4}-[^()]+)\)[^()]*$")
_joined: ContextVar[Connection | None] = ContextVar("joined", default=None)


class LockTimeout(Unavailable):
    """Ended by the server before it was done: it waited too long for a row, took too long as a whole, or found a key
    taken in the meantime."""


class StalePlan(Unavailable):
    """A migration changed what a prepared statement returns. The driver prepares it anew, but inside a transaction it
    cannot repeat it; the whole transaction can be repeated."""


class NotPermitted(Unavailable):
    """The role of the connection lacks a privilege for the statement."""


class Rejected(DetentError):  # noqa: N818 - as above
    """The data itself was refused; `constraint` names the rule where the server reports it."""

    def __init__(self, message: str, constraint: str | None, sqlstate: str) -> None:
        super().__init__(message)
        self.constraint = constraint
        self.sqlstate = sqlstate


class MissingHistoryPartition(Rejected):
    """History has no partition for a row of this time."""

    def __init__(self, message: str, at: datetime) -> None:
        super().__init__(message, None, "23514")
        self.at = at


class OutcomeUnknown(DetentError):  # noqa: N818 - as above
    """The statement was applied or not: unknown. A program that reads only the exit code takes it as unavailable."""

    exit_code = Unavailable.exit_code

    def __init__(self, reason: str) -> None:
        super().__init__(f"The database's answer was lost ({reason}).")


async def connect(url: str, schema: str, limits: StatementLimits = STANDARD, *, pooled: bool = False) -> Connection:
    """One connection outside any pool: for heartbeats, notifications and migrations."""
    return await servers_of(url).connect(**driver_options(schema, limits, pooled=pooled))


@asynccontextmanager
async def connected(url: str, schema: str, *, pooled: bool = False) -> AsyncIterator[Connection]:
    """One connection outside any pool, for the statements of this block; driver errors become their meanings."""
    connection = await connect(url, schema, pooled=pooled)
    try:
        with _translated():
            yield connection
    finally:
        connection.terminate()


def _time_without_partition(error: Exception) -> datetime | None:
    """The time of a row for which history has no partition. The server names no constraint then, and its message
    depends on its language; the value is in the last parentheses of the detail."""
    if not isinstance(error, asyncpg.CheckViolationError) or error.constraint_name is not None:
        return None
    if error.table_name not in HISTORY:
        return None
    found = _VALUE.search(error.detail or "")
    try:
        return datetime.fromisoformat(found[1]) if found is not None else None
    except ValueError:
        return None


def translate(error: BaseException) -> DetentError | None:
    """The meaning of a driver error, or None for any other error."""
    if isinstance(error, asyncpg.LockNotAvailableError | asyncpg.DeadlockDetectedError | asyncpg.QueryCanceledError):
        return LockTimeout(str(error))
    refused = asyncpg.IntegrityConstraintViolationError | asyncpg.DataError | asyncpg.UndefinedObjectError
    if isinstance(error, refused):
        if (at := _time_without_partition(error)) is not None:
            return MissingHistoryPartition(str(error), at)
        constraint = getattr(error, "constraint_name", None)
        return Rejected(str(error), constraint, getattr(error, "sqlstate", None) or "22000")
    if isinstance(error, asyncpg.PostgresConnectionError | asyncpg.AdminShutdownError | asyncpg.CrashShutdownError):
        return OutcomeUnknown(str(error) or "the connection was lost")
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return StalePlan(str(error))
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return NotPermitted(str(error))
    if isinstance(error, asyncpg.PostgresError):
        return Unavailable(f"The database refused a statement: {error}.")
    # The driver raises its internal error on a connection that the server has just ended.
    lost = OSError | TimeoutError | asyncpg.InterfaceError | asyncpg.InternalClientError | failpoints.ReplyDropped
    if isinstance(error, lost):
        return OutcomeUnknown(str(error) or "the reply was lost")
    return None


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        meaning = translate(error)
        if meaning is None:
            raise
        raise meaning from error


def _limiting_transactions(limits: StatementLimits) -> Callable[[Connection], Awaitable[None]] | None:
    """What a pool does first with a new connection. The parameter exists from PostgreSQL 17 on; on older servers the
    idle limit and the statement limit have to suffice."""
    if limits.transaction is None:
        return None
    most = milliseconds(limits.transaction)

    async def limit(connection: Connection) -> None:
        if connection.get_server_version().major >= pooler.WITH_TRANSACTION_TIMEOUT:
            await connection.execute(f"SET transaction_timeout = '{most}'")

    return limit


async def keep(_connection: Connection) -> None:
    """Reset nothing after use: statements leave no session state behind. The driver's own reset would be a second round
    trip for every statement, would undo the limit set above, and through a pooler would reset another client."""


class Database:
    """Small pools, so that requests never delay fires, fires never delay settles, and none of them delays the take-over
    from a failed node. `PoolName` says what each pool is for.

    `pooled` means that a pooler sits between this process and the server, and passes connections on after each
    transaction."""

    def __init__(
        self, url: str, schema: str = "detent", *, pooled: bool = False, ttl: float = DEFAULT_TTL, pools: Sizes = POOLS
    ) -> None:
        """`pools` are those that this process needs: a program that only enqueues has no use for those of a node."""
        self.url = url
        self._sizes = pools
        self.schema = schema
        self.pooled = pooled
        self.limits = pool_limits(ttl)
        self.servers = servers_of(url)
        self._generation = self.servers.generation
        self._looking: asyncio.Task[None] | None = None
        self._pools: dict[PoolName, Pool] = {}
        self.wall = TenantWall(pooled=pooled)
        self._turns = pooler.TransactionTurns()

    @property
    def answer_seconds(self) -> float:
        """A node's own statement that has not answered after this long has an unknown outcome."""
        return self.limits[PoolName.WORK].answer

    async def open(self) -> None:
        try:
            for name, (size, idle_seconds) in self._sizes.items():
                self._pools[name] = self._pool(name, size, idle_seconds=idle_seconds)
                if name not in OPENED_LATER:
                    await self._pools[name].open()
            async with self.connection(PoolName.REQUEST) as connection:
                await self.wall.find(connection)
            options = driver_options(self.schema, self.limits[PoolName.REQUEST], pooled=self.pooled)
            self._looking = asyncio.create_task(self.servers.look_around(**options))
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
            await self.close()
            raise unreachable(self.url, error) from error
        except BaseException:
            await self.close()
            raise

    def _pool(self, name: PoolName, size: int, *, idle_seconds: float) -> Pool:
        limits = self.limits[name]
        options = driver_options(self.schema, limits, pooled=self.pooled)
        prepare = None if self.pooled else _limiting_transactions(limits)

        async def connect() -> Connection:
            connection = await self.servers.connect(node=name not in FOR_REQUESTS, **options)
            if prepare is not None:
                try:
                    await prepare(connection)
                except BaseException:
                    connection.terminate()
                    raise
            return connection

        return Pool(connect, size, idle_seconds=idle_seconds)

    @asynccontextmanager
    async def unpooled(self) -> AsyncIterator[Connection]:
        """A new connection outside the pools, whose connections may still lead to a former primary."""
        async with connected(self.url, self.schema, pooled=self.pooled) as connection:
            yield connection

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            try:
                await asyncio.wait_for(pool.close(), 2)
            except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                pool.terminate()

    async def fetch(self, pool: PoolName, statement: Statement, *arguments: object) -> list[Row]:
        """Run the statement in its own transaction, and return its rows."""
        for _ in range(MAX_MISSING_PARTITIONS):
            try:
                return await self._fetch(pool, statement, *arguments)
            except MissingHistoryPartition as missing:
                await self._add_partition(pool, missing)
        return await self._fetch(pool, statement, *arguments)

    async def _fetch(self, pool: PoolName, statement: Statement, *arguments: object) -> list[Row]:
        async with self.connection(pool) as connection:
            return await connection.fetch(statement.text, *arguments, timeout=self._deadline(pool))

    async def fetch_within(self, seconds: float, pool: PoolName, statement: Statement, *arguments: object) -> list[Row]:
        """As fetch, for a query whose answer is of no use after `seconds`: the connection is closed then."""
        async with self.connection(pool, seconds) as connection:
            return await connection.fetch(statement.text, *arguments, timeout=seconds)

    async def fetch_guarded(
        self, pool: PoolName, statement: Statement, before: str, after: str, *arguments: object
    ) -> list[Row]:
        """As fetch, with failpoints: `before` the commit (only then is there an explicit transaction), `after` it."""
        if failpoints.armed(before):
            return await self.transaction(pool, lambda c: self._then_hit(c, statement, before, arguments))
        rows = await self.fetch(pool, statement, *arguments)
        try:
            await failpoints.hit(after)
        except failpoints.ReplyDropped as error:
            raise OutcomeUnknown("the reply was dropped by a failpoint") from error
        return rows

    async def _then_hit(
        self, connection: Connection, statement: Statement, step: str, arguments: tuple[object, ...]
    ) -> list[Row]:
        rows: list[Row] = await connection.fetch(statement.text, *arguments)
        await failpoints.hit(step)
        return rows

    async def transaction(self, pool: PoolName, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Run `work` in one transaction; it may be called more than once."""
        for _ in range(MAX_MISSING_PARTITIONS):
            try:
                return await self._transaction(pool, work)
            except MissingHistoryPartition as missing:
                await self._add_partition(pool, missing)
            except StalePlan:
                continue
        return await self._transaction(pool, work)

    async def _transaction(self, pool: PoolName, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        async with self.connection(pool) as connection, connection.transaction():
            return await work(connection)

    async def _add_partition(self, pool: PoolName, missing: MissingHistoryPartition) -> None:
        """Add the partition that a statement needs, so that the statement can be tried again."""
        by = PoolName.SEPARATE if pool in FOR_REQUESTS else PoolName.WORK
        (made,) = await self._fetch(by, sql.history.ADD_PARTITION, missing.at)
        added = [name for name in made.values() if name is not None]  # none: another process was faster
        if added:
            log.warning("history had no partition: added", partition=added[0])
        # Inside a joined transaction, which has failed as a whole.
        if pool is PoolName.REQUEST and _joined.get() is not None:
            raise missing

    @asynccontextmanager
    async def joined(self, *, registers_for: int | None = None) -> AsyncIterator[Connection]:
        """One transaction around all verbs that use REQUEST inside: each joins it, with a savepoint where it would
        otherwise open its own transaction. `registers_for`: verbs that register jobs of this tenant also use SEPARATE,
        so that the transaction waits for a second connection."""
        turn = nullcontext() if registers_for is None or not self.pooled else self._turns.turn(registers_for)
        async with turn, self.connection(PoolName.REQUEST) as connection, connection.transaction():
            before = _joined.set(connection)
            try:
                yield connection
            finally:
                _joined.reset(before)

    @asynccontextmanager
    async def connection(self, pool: PoolName, seconds: float = CONNECTION_SECONDS) -> AsyncIterator[Connection]:
        """A pooled connection, after a wait of at most `seconds`; driver errors become one of the four meanings."""
        with _translated():
            async with self._acquired(pool, seconds) as connection:
                yield connection

    @asynccontextmanager
    async def _acquired(self, pool: PoolName, seconds: float) -> AsyncIterator[Connection]:
        held = _joined.get() if pool is PoolName.REQUEST else None
        if held is not None:
            yield held
            return
        self._expire_old_connections()
        source = self._pools.get(pool)
        if source is None:
            raise Unavailable("The database is closed.")
        connection = await source.acquire(min(seconds, self.limits[pool].answer))
        unsettled = False
        try:
            if pool in WALLED:
                await self.wall.enter(connection)
            yield connection
        except DetentError:
            raise
        except BaseException as error:
            lost = isinstance(error, TimeoutError)
            if lost or (isinstance(error, asyncio.CancelledError) and pool not in FOR_REQUESTS):
                # Its statement is still under way. The driver would wait for the server to confirm the end of it, for
                # as long again, and a server that does not answer never does. The server's own limit ends it.
                connection.terminate()
            unsettled = True
            raise
        finally:
            source.release(connection, unsettled=unsettled)

    def _expire_old_connections(self) -> None:
        """They may lead to a former primary, whose writes are lost."""
        generation = self.servers.generation
        if generation != self._generation:
            self._generation = generation
            for pool in self._pools.values():
                pool.expire()

    def _deadline(self, pool: PoolName) -> float:
        return self.limits[pool].answer
