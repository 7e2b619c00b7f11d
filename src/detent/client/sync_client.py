"""The blocking client.

    with Client() as client:
        job = client.create_job({"name": "hello", "schedule": "@daily", "target": {"type": "http", "url": "https://…"}})
        run = client.wait_for_run(client.trigger_job(job.id).id, timeout=60)

Without an address it uses DETENT_API_URL, else the server on this machine. Without a key it sends DETENT_API_KEY, or
the content of the file that DETENT_API_KEY_FILE names, if one is set. With `ca_file` or DETENT_CA_FILE, it trusts only
servers with a certificate of these authorities; `client_cert` and `client_key` (DETENT_CLIENT_CERT, DETENT_CLIENT_KEY)
are for servers that ask for a certificate.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from detent.client.base import BlockingClient, typed, url_and_key
from detent.client.follow import follow, typed_event
from detent.client.operation import Item, Request, Result, Steps
from detent.client.tls import tls_of
from detent.client.transport import ANSWER_SECONDS
from detent.contract.page import Page
from detent.contract.run import LogLine, RunProgress


class Client(BlockingClient):
    """One connection, kept alive between calls. A client is not thread-safe: use one per thread."""

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
        tls = tls_of(ca_file, client_cert, client_key)
        super().__init__(*url_and_key(url, key), timeout=timeout, tls=tls)

    def _send(self, request: Request[Result]) -> Result:
        return typed(self._connection.address, request, self._answer(request))

    def follow_run_logs(self, run: str | UUID, *, attempt: int | None = None) -> Iterator[LogLine | RunProgress]:
        """The lines of a run as they are written, and its progress, until it has ended."""
        for event in follow(self._connection, run, attempt):
            if (found := typed_event(event)) is not None:
                yield found

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
