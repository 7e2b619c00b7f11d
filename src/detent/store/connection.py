"""What the store uses of the driver's connection. The driver has no types; this is where they begin."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

Row = Mapping[str, Any]
Records = Iterable[Sequence[object]] | AsyncIterable[Sequence[object]]


class ServerVersion(Protocol):
    @property
    def minor(self) -> int: ...

    @property
    def major(self) -> int: ...


class Connection(Protocol):
    """One connection to PostgreSQL. `timeout` is in seconds; None: the connection's own."""

    async def fetch(self, query: str, /, *arguments: Any, timeout: float | None = None) -> list[Row]: ...

    async def fetchrow(self, query: str, /, *arguments: Any, timeout: float | None = None) -> Row | None: ...

    async def fetchval(self, query: str, /, *arguments: Any, timeout: float | None = None) -> Any: ...

    async def execute(self, query: str, /, *arguments: Any, timeout: float | None = None) -> str: ...

    async def copy_records_to_table(
        self, table_name: str, /, *, records: Records, columns: Sequence[str], timeout: float | None = None
    ) -> str: ...

    def cursor(self, query: str, /, *arguments: Any, prefetch: int | None = None) -> AsyncIterable[Row]: ...

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[object]: ...

    def is_in_transaction(self) -> bool: ...

    def get_server_version(self) -> ServerVersion: ...

    def get_server_pid(self) -> int: ...

    async def add_listener(self, channel: str, callback: Callable[..., object], /) -> None: ...

    def is_closed(self) -> bool: ...

    async def close(self, *, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...
