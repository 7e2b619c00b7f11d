"""The client for programs that await. It has the verbs and types of `Client`, and finds its server in the same way."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from detent.client.base import accepted, typed, url_and_key
from detent.client.follow import follow_async, typed_event
from detent.client.operation import Item, Request, Result, Steps
from detent.client.operations import Operations
from detent.client.tls import CLOSED, tls_of, tls_reason
from detent.client.transport import ANSWER_SECONDS, CONNECT_SECONDS, ApiAddress, ApiAnswer, may_repeat
from detent.contract.page import Page
from detent.contract.run import LogLine, RunProgress

if TYPE_CHECKING:
    import aiohttp


class AsyncClient(Operations):
    """Any number of concurrent calls, on the connections of one session. Close it, or use `async with`."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = ANSWER_SECONDS,
        ca_file: str | os.PathLike[str] | None = None,
        client_cert: str | os.PathLike[str] | None = None,
        client_key: str | os.PathLike[str] | None = None,
    ) -> None:
        self._address = ApiAddress(*url_and_key(url, key))
        self._tls = tls_of(ca_file, client_cert, client_key).context() if self._address.scheme == "https" else None
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        return self._address.url

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _send(self, request: Request[Result]) -> Result:
        answer = accepted(self._address, request, await self._exchange(request))
        return typed(self._address, request, answer)

    async def _exchange(self, request: Request[Any], *, again: bool = False) -> ApiAnswer:
        import aiohttp

        seconds = self._timeout + request.patience
        try:
            return await self._ask(request, aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS))
        except TimeoutError as error:
            raise self._address.too_slow(seconds) from error
        except aiohttp.ClientError as error:
            # A connection that was kept alive may have died in the meantime.
            repeatable = may_repeat(request.method, request.headers)
            if isinstance(error, aiohttp.ServerDisconnectedError) and repeatable and not again:
                return await self._exchange(request, again=True)
            if self._address.scheme == "https" and (reason := _tls_reason(error)) is not None:
                raise self._address.no_tls(reason) from error
            raise self._address.unreachable(_reason(error)) from error

    async def _ask(self, request: Request[Any], timeout: aiohttp.ClientTimeout) -> ApiAnswer:
        from yarl import URL

        target = URL(self._address.url + request.target, encoded=True)
        body = request.content()
        headers = request.headers if body is None else {**request.headers, "Content-Type": "application/json"}
        async with self._opened().request(
            request.method, target, data=body, headers=headers, timeout=timeout, allow_redirects=False
        ) as answer:
            change = answer.headers.get("Detent-Change")
            return ApiAnswer(answer.status, answer.content_type, await answer.read(), change)

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=True if self._tls is None else self._tls)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._address.headers, trust_env=False)
        return self._session

    async def follow_run_logs(
        self, run: str | UUID, *, attempt: int | None = None
    ) -> AsyncIterator[LogLine | RunProgress]:
        """The lines of a run as they are written, and its progress, until it has ended."""
        async for event in follow_async(self, run, attempt):
            if (found := typed_event(event)) is not None:
                yield found

    async def _stream(self, target: str, headers: Mapping[str, str], silent: float) -> AsyncIterator[str]:
        """The lines of an answer that stays open. It is broken when nothing comes for `silent` seconds."""
        import aiohttp
        from yarl import URL

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silent)
        address = URL(self._address.url + target, encoded=True)
        try:
            async with self._opened().get(address, headers=headers, timeout=timeout, allow_redirects=False) as answer:
                if answer.status != 200 or answer.content_type != "text/event-stream":
                    read = ApiAnswer(answer.status, answer.content_type, await answer.read())
                    raise read.refusal(self._address)
                async for line in answer.content:
                    yield line.decode().rstrip("\r\n")
        except TimeoutError as error:
            raise self._address.too_slow(silent) from error
        except aiohttp.ClientError as error:
            if self._address.scheme == "https" and (reason := _tls_reason(error)) is not None:
                raise self._address.no_tls(reason) from error
            raise self._address.unreachable(_reason(error)) from error

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


def _tls_reason(error: Exception) -> str | None:
    import aiohttp

    if isinstance(error, aiohttp.ServerDisconnectedError):
        return CLOSED
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    # The deepest one is that of `ssl`; the others repeat it with less detail.
    return next((reason for cause in reversed(causes) if (reason := tls_reason(cause)) is not None), None)


def _reason(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return ""
        cause = cause.__cause__
    return str(error) or type(error).__name__
