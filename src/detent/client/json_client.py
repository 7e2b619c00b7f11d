"""The client of the command line: the verbs of `Client`, answered with the server's JSON.

`--json` prints what the server sent, including fields that this version does not know, and a command works as long as
the fields that it shows are there. Typed results would drop the former and refuse the latter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from detent.client.base import BlockingClient
from detent.client.follow import follow
from detent.client.operation import Request
from detent.client.transport import PAGE_SIZE, Document


class JsonClient(BlockingClient):
    """One connection, kept alive between calls. Address and key are exactly those given: the command line reads the
    environment itself, and a context without a key must not get the one of another server."""

    change: str | None = None  # what the last upsert or rollback did: created, updated or unchanged

    def _send(self, request: Request[Any]) -> Document:
        answer = self._answer(request)
        self.change = answer.change
        return answer.document(self._connection.address) if answer.raw else {}

    def follow_run_logs(self, run: str, *, attempt: int | None = None) -> Iterator[tuple[str, Document]]:
        """The events of a run with their kinds (line, progress, end), until it has ended."""
        for event in follow(self._connection, run, attempt):
            yield event.kind, json.loads(event.data)

    def _items(self, request: Request[Any]) -> JsonListing:
        return JsonListing(self, request)


class JsonListing:
    """A listing that has not been sent: iterate over all its items, or read it page by page."""

    def __init__(self, client: JsonClient, request: Request[Any]) -> None:
        self._client = client
        self._request = request

    def page(self, limit: int | None = None, cursor: str | None = None) -> Document:
        """One page of the API."""
        limited = {} if limit is None else {"limit": limit}
        return self._client._send(self._request.page(**limited, cursor=cursor))

    def gather(self, limit: int, cursor: str | None = None) -> Document:
        """One page of up to `limit` items, from as many pages of the API as that takes."""
        items: list[Document] = []
        while True:
            page = self.page(min(limit - len(items), PAGE_SIZE), cursor)
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None or len(items) >= limit:
                return {"items": items, "next_cursor": cursor}

    def __iter__(self) -> Iterator[Document]:
        cursor = None
        while True:
            page = self.page(cursor=cursor)
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return
