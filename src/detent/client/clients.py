"""The clients for programs: `Client` and, awaited, `AsyncClient`. Same verbs, same types; see `operations.py`.

    with Client() as client:
        job = client.create_job({"name": "hello", "schedule": "@daily", "target": {"type": "http", "url": "https://…"}})
        run = client.wait_for_run(client.trigger_job(job.id).id, timeout=60)

Without an address they ask the server of DETENT_API_URL, or the one on this machine; without a key they send that of
DETENT_API_KEY, or of the file that DETENT_API_KEY_FILE names, if there is one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from detent.client.operation import Item, Request, Result, Steps
from detent.client.operations import Operations
from detent.client.transport import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    Answer,
    Connection,
    Server,
    encode,
    may_repeat,
    with_query,
)
from detent.contract.page import Page
from detent.domain.documents import plain
from detent.errors import Unavailable, UsageError

if TYPE_CHECKING:
    import aiohttp

LOCAL = "http://127.0.0.1:8787"


class Client(Operations):
    """One connection, kept alive between calls; give each thread a client of its own."""

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout: float = ANSWER_SECONDS) -> None:
        self._connection = Connection(*_address(url, key), timeout=timeout)

    @property
    def url(self) -> str:
        return self._connection.url

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, request: Request[Result]) -> Result:
        target = with_query(request.path, request.query)
        body = _body(request)
        answer = self._connection.exchange(request.method, target, body, request.patience, request.headers)
        return _read(self._connection.server, request, answer)

    def _items(self, request: Request[Page[Item]]) -> Iterator[Item]:
        following: Request[Page[Item]] | None = request
        while following is not None:
            page = self._send(following)
            yield from page.items
            following = following.after(page.next_cursor) if page.next_cursor is not None else None

    def _follow(self, steps: Steps[Result]) -> Result:
        answer: Any = None
        pause = threading.Event()
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            answer = self._send(step) if isinstance(step, Request) else pause.wait(step)


class AsyncClient(Operations):
    """Any number of calls at once, on the connections of one session. Close it, or use `async with`."""

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout: float = ANSWER_SECONDS) -> None:
        self._server = Server(*_address(url, key))
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        return self._server.url

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _send(self, request: Request[Result]) -> Result:
        return _read(self._server, request, await self._exchange(request))

    async def _exchange(self, request: Request[Any], *, again: bool = False) -> Answer:
        import aiohttp

        seconds = self._timeout + request.patience
        try:
            return await self._ask(request, aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS))
        except TimeoutError as error:
            raise self._server.too_slow(seconds) from error
        except aiohttp.ClientError as error:
            # A connection that was kept alive may have died meanwhile.
            repeatable = may_repeat(request.method, request.headers)
            if isinstance(error, aiohttp.ServerDisconnectedError) and repeatable and not again:
                return await self._exchange(request, again=True)
            raise self._server.unreachable(_reason(error)) from error

    async def _ask(self, request: Request[Any], timeout: aiohttp.ClientTimeout) -> Answer:
        import aiohttp
        from yarl import URL

        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._server.headers, trust_env=False)
        target = URL(self._server.url + with_query(request.path, request.query), encoded=True)
        body = _body(request)
        headers = request.headers if body is None else {**request.headers, "Content-Type": "application/json"}
        async with self._session.request(
            request.method, target, data=body, headers=headers, timeout=timeout, allow_redirects=False
        ) as answer:
            change = answer.headers.get("Detent-Change")
            return Answer(answer.status, answer.content_type, await answer.read(), change)

    async def _items(self, request: Request[Page[Item]]) -> AsyncIterator[Item]:
        following: Request[Page[Item]] | None = request
        while following is not None:
            page = await self._send(following)
            for item in page.items:
                yield item
            following = following.after(page.next_cursor) if page.next_cursor is not None else None

    async def _follow(self, steps: Steps[Result]) -> Result:
        import asyncio

        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            answer = await (self._send(step) if isinstance(step, Request) else asyncio.sleep(step))


def _address(url: str | None, key: str | None) -> tuple[str, str | None]:
    return url or os.environ.get("DETENT_API_URL") or LOCAL, key or os.environ.get("DETENT_API_KEY") or _key_of_file()


def _key_of_file() -> str | None:
    path = os.environ.get("DETENT_API_KEY_FILE")
    if not path:
        return None
    try:
        return Path(path).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The file {path}, which DETENT_API_KEY_FILE names, cannot be read ({error}).") from error


def _body(request: Request[Any]) -> bytes | None:
    return None if request.body is None else encode(plain(request.body))


def _read(server: Server, request: Request[Result], answer: Answer) -> Result:
    if not answer.good:
        raise answer.refusal(server)
    if answer.raw and not answer.kind.endswith("json"):
        raise server.foreign(answer)
    try:
        return request.read(answer)
    except msgspec.ValidationError as error:
        raise Unavailable(
            f"The server at {server.url} answers in another form than this client knows ({error}): "
            "use the same version of both."
        ) from error
    except msgspec.DecodeError as error:
        raise server.foreign(answer) from error


def _reason(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return ""
        cause = cause.__cause__
    return str(error) or type(error).__name__
