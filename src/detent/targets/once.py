"""Effects that happen once per key: the mark and the effect commit together, or the mark after it, never before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec

from detent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

P = ParamSpec("P")
Wait = Callable[[Coroutine[Any, Any, Any]], Any]

_inside: ContextVar[str | None] = ContextVar("inside", default=None)


@contextmanager
def alone(what: str) -> Iterator[None]:
    """Two transactions of one handler, one inside the other, may wait for each other, or for a connection, for ever."""
    token = enter_alone(what)
    try:
        yield
    finally:
        _inside.reset(token)


def enter_alone(what: str) -> Token[str | None]:
    outer = _inside.get()
    if outer is not None:
        raise UsageError(f"{what} is inside of {outer}: put one behind the other, or use the connection of {outer}.")
    return _inside.set(what)


class Effect:
    """What `async with run.once(key) as effect` gives: do the effect if it is the `first`."""

    def __init__(self, key: str, connection: Any) -> None:
        self._key = key
        self._connection = connection

    @property
    def first(self) -> bool:
        """Whether the effect has not happened yet: then this block does it."""
        return self._connection is not None

    @property
    def connection(self) -> Any:
        """An asyncpg connection in the transaction that also marks the effect as done."""
        if self._connection is None:
            raise UsageError(f"The effect {self._key!r} has happened already: ask effect.first before you do it.")
        return self._connection


class BlockingConnection:
    """A connection for plain functions: each call waits in the handler's thread."""

    def __init__(self, connection: Any, wait: Wait) -> None:
        self._connection = connection
        self._wait = wait

    def execute(self, query: str, *args: Any) -> str:
        status: str = self._wait(self._connection.execute(query, *args))
        return status

    def executemany(self, query: str, args: Any) -> None:
        self._wait(self._connection.executemany(query, args))

    def fetch(self, query: str, *args: Any) -> list[Any]:
        rows: list[Any] = self._wait(self._connection.fetch(query, *args))
        return rows

    def fetchrow(self, query: str, *args: Any) -> Any:
        return self._wait(self._connection.fetchrow(query, *args))

    def fetchval(self, query: str, *args: Any) -> Any:
        return self._wait(self._connection.fetchval(query, *args))


class BlockingEffect(Effect):
    """What `with run.once(key) as effect` gives, in a plain function."""

    def __init__(self, key: str, connection: Any, wait: Wait) -> None:
        super().__init__(key, connection)
        self._wait = wait

    @property
    def connection(self) -> BlockingConnection:
        """Statements on it are in the transaction that also marks the effect as done."""
        return BlockingConnection(super().connection, self._wait)


class Once:
    """One effect: use it with `async with`, in plain functions with `with`, or give `do` a function."""

    def __init__(
        self, key: str, begin: Callable[[], AbstractAsyncContextManager[Any]], wait: Callable[[], Wait]
    ) -> None:
        """`begin` opens the transaction: its connection, or None if the effect has happened. `wait`: awaits on the
        handlers' loop, from a thread of a plain function."""
        self._key = key
        self._begin = begin
        self._wait = wait
        self._open: AbstractAsyncContextManager[Any] | None = None
        self._token: Token[str | None] | None = None

    @property
    def _name(self) -> str:
        return f"run.once({self._key!r})"

    def _enter(self) -> AbstractAsyncContextManager[Any]:
        if self._open is not None:
            raise UsageError(f"This {self._name} was used before: call run.once again.")
        self._token = enter_alone(self._name)
        self._open = self._begin()
        return self._open

    def _leave(self) -> None:
        if self._token is not None:
            _inside.reset(self._token)
            self._token = None

    async def __aenter__(self) -> Effect:
        opened = self._enter()
        try:
            return Effect(self._key, await opened.__aenter__())
        except BaseException:
            self._leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._open is not None
        try:
            await self._open.__aexit__(kind, error, trace)
        finally:
            self._leave()

    def __enter__(self) -> BlockingEffect:
        wait = self._wait()
        opened = self._enter()
        try:
            return BlockingEffect(self._key, wait(_entered(opened)), wait)
        except BaseException:
            self._leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._open is not None
        try:
            self._wait()(_exited(self._open, kind, error, trace))
        finally:
            self._leave()

    async def do(self, function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Call and await the function if the effect has not happened yet; returns whether it was called."""
        async with self as effect:
            if effect.first:
                await function(*args, **kwargs)
            return effect.first

    def do_sync(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
        """As `do`, in a plain function."""
        with self as effect:
            if effect.first:
                function(*args, **kwargs)
            return effect.first


async def _entered(manager: AbstractAsyncContextManager[Any]) -> Any:
    return await manager.__aenter__()


async def _exited(
    manager: AbstractAsyncContextManager[Any],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    await manager.__aexit__(kind, error, trace)
