"""Effects that happen once per key, with the mark in the Redis of the user.

The mark is written after the work, in one MULTI/EXEC with the effects in that Redis. Never before the work, as `SETNX`
would: a worker that dies between the two leaves a mark without an effect, and no retry does it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, ParamSpec, Protocol

from detent.errors import Conflict, UsageError

P = ParamSpec("P")


class RedisClient(Protocol):
    """`redis.asyncio.Redis`, or `redis.Redis` in plain functions."""

    def pipeline(self, transaction: bool = True) -> Any: ...


class RedisEffect:
    """What the block of `run.once(key, redis=client)` gets."""

    def __init__(self, key: str, pipeline: Any) -> None:
        self._key = key
        self._pipeline = pipeline

    @property
    def first(self) -> bool:
        """Whether the effect has not happened yet: then this block does it."""
        return self._pipeline is not None

    @property
    def pipeline(self) -> Any:
        """Commands that Redis executes together with the mark when the block ends: all or none."""
        if self._pipeline is None:
            raise UsageError(f"The effect {self._key!r} has happened already: ask effect.first before you do it.")
        return self._pipeline


class RedisOnce:
    """One effect: use it with `async with`, or with `with` and a blocking client, or give `do` a function."""

    def __init__(
        self, key: str, name: str, client: RedisClient, kept_for: timedelta, by: str, check: Callable[[], None]
    ) -> None:
        """`name`: of the mark in Redis. `by`: the run, which is its value. `check` raises if the run was lost."""
        self._key = key
        self._name = name
        self._client = client
        self._kept_ms = max(int(kept_for.total_seconds() * 1000), 1)
        self._by = by
        self._check = check
        self._pipeline: Any = None
        self._first = False

    async def __aenter__(self) -> RedisEffect:
        self._pipeline = self._client.pipeline(transaction=True)
        watching = self._pipeline.watch(self._name)
        if not inspect.isawaitable(watching):
            self._pipeline.reset()
            raise UsageError("`async with` needs a client of redis.asyncio: give one, or write `with`.")
        try:
            await watching
            return self._begun(bool(await self._pipeline.exists(self._name)))
        except BaseException:
            await self._pipeline.reset()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._first and kind is None:
                self._mark()
                with _rivals(self._key):
                    await self._pipeline.execute()
        finally:
            await self._pipeline.reset()

    def __enter__(self) -> RedisEffect:
        self._pipeline = self._client.pipeline(transaction=True)
        watching = self._pipeline.watch(self._name)
        if inspect.isawaitable(watching):
            getattr(watching, "close", lambda: None)()
            raise UsageError("`with` needs a client of `redis`, not of redis.asyncio: give one, or write `async with`.")
        try:
            return self._begun(bool(self._pipeline.exists(self._name)))
        except BaseException:
            self._pipeline.reset()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._first and kind is None:
                self._mark()
                with _rivals(self._key):
                    self._pipeline.execute()
        finally:
            self._pipeline.reset()

    async def do(self, function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Call and await the function if the effect has not happened yet; returns whether it was called."""
        async with self as effect:
            if effect.first:
                await function(*args, **kwargs)
            return effect.first

    def do_sync(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
        """As `do`, in a plain function, with a blocking client."""
        with self as effect:
            if effect.first:
                function(*args, **kwargs)
            return effect.first

    def _begun(self, done: bool) -> RedisEffect:
        self._first = not done
        if self._first:
            self._pipeline.multi()
        return RedisEffect(self._key, self._pipeline if self._first else None)

    def _mark(self) -> None:
        self._check()
        self._pipeline.set(self._name, self._by, px=self._kept_ms)


@contextmanager
def _rivals(key: str) -> Iterator[None]:
    """Another run may mark the effect meanwhile: then Redis executes nothing of this block."""
    from redis.exceptions import WatchError

    try:
        yield
    except WatchError as error:
        raise Conflict(
            f"Another run did {key!r} at the same time, or the connection was lost: nothing of this block was written "
            "to Redis, and a retry finds out."
        ) from error
