"""libcurl's multi interface on an event loop: the loop watches its sockets and its timer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any

import pycurl


class CurlMulti:
    def __init__(self, check: Callable[[str], str | None], connections: int, cap: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._check = check
        self._cap = cap
        self._idle: list[pycurl.Curl] = []
        self._waiting: dict[pycurl.Curl, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._watched: dict[int, int] = {}
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, connections)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        easy = self._idle.pop() if self._idle else self._make()
        pieces = bytearray()
        sent = False

        def keep(data: bytes) -> int:
            pieces.extend(data)
            return len(data) if len(pieces) <= self._cap else 0

        def once(*_: object) -> int:
            # It would quietly send again when a connection that was used before breaks.
            nonlocal sent
            sent, before = True, sent
            return pycurl.PREREQFUNC_ABORT if before else pycurl.PREREQFUNC_OK

        easy.setopt(pycurl.URL, url)
        easy.setopt(pycurl.HTTPHEADER, [f"{name}: {value}" for name, value in headers.items()])
        easy.setopt(pycurl.POSTFIELDS, body)
        easy.setopt(pycurl.WRITEFUNCTION, keep)
        easy.setopt(pycurl.PREREQFUNCTION, once)
        done = self._waiting[easy] = self._loop.create_future()
        self._multi.add_handle(easy)
        try:
            await done
        finally:
            if self._waiting.pop(easy, None) is not None:
                self._multi.remove_handle(easy)
        status = easy.getinfo(pycurl.RESPONSE_CODE)
        self._idle.append(easy)
        return status, bytes(pieces)

    def _make(self) -> pycurl.Curl:
        easy = pycurl.Curl()
        easy.setopt(pycurl.OPENSOCKETFUNCTION, self._open)
        easy.setopt(pycurl.FOLLOWLOCATION, 0)
        easy.setopt(pycurl.PROXY, "")
        easy.setopt(pycurl.NOSIGNAL, 1)
        easy.setopt(pycurl.POST, 1)
        easy.setopt(pycurl.CONNECTTIMEOUT, 10)
        easy.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        return easy

    def _open(self, _purpose: int, address: Any) -> Any:
        family, kind, protocol, sockaddr = address
        if self._check(str(sockaddr[0])) is not None:
            return pycurl.SOCKET_BAD
        return socket.socket(family, kind, protocol)

    def _watch(self, event: int, descriptor: int, _multi: Any, _data: Any) -> None:
        before = self._watched.get(descriptor, 0)
        wanted = 0 if event == pycurl.POLL_REMOVE else event
        self._watched[descriptor] = wanted
        if before & pycurl.POLL_IN and not wanted & pycurl.POLL_IN:
            self._loop.remove_reader(descriptor)
        if before & pycurl.POLL_OUT and not wanted & pycurl.POLL_OUT:
            self._loop.remove_writer(descriptor)
        if wanted & pycurl.POLL_IN and not before & pycurl.POLL_IN:
            self._loop.add_reader(descriptor, self._act, descriptor, pycurl.CSELECT_IN)
        if wanted & pycurl.POLL_OUT and not before & pycurl.POLL_OUT:
            self._loop.add_writer(descriptor, self._act, descriptor, pycurl.CSELECT_OUT)

    def _set_timer(self, milliseconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if milliseconds >= 0:
            self._timer = self._loop.call_later(milliseconds / 1000, self._act, pycurl.SOCKET_TIMEOUT, 0)

    def _act(self, descriptor: int, events: int) -> None:
        self._multi.socket_action(descriptor, events)
        more = 1
        while more:
            more, finished, failed = self._multi.info_read()
            for easy in finished:
                self._end(easy, None)
            for easy, code, text in failed:
                self._end(easy, OSError(code, text))

    def _end(self, easy: pycurl.Curl, error: Exception | None) -> None:
        self._multi.remove_handle(easy)
        done = self._waiting.pop(easy)
        if not done.done():
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for easy in self._idle:
            easy.close()
        self._multi.close()
