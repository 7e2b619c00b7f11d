"""A client without state that checks what every answer must have."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import aiohttp
from yarl import URL

from detent.api.problem_pages import TEXTS
from detent.store import Store

HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}
PROBLEM_FIELDS = {"type", "title", "status", "detail", "pointer", "errors", "revision", "limit", "used"}
PROBLEM_FIELDS |= {"translation", "trace_id"}


@dataclass
class Answer:
    status: int
    headers: Any
    document: Any


class ApiClient:
    def __init__(self, url: str, session: aiohttp.ClientSession, store: Store) -> None:
        self.url = url
        self.session = session
        self.store = store

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        """`json` or `data` is the body; the path is sent as it is written."""
        url = URL(self.url + path, encoded=True)
        if isinstance(data := options.get("data"), str | bytes):
            options["data"] = BytesIO(data.encode() if isinstance(data, str) else data)
        async with self.session.request(method, url, **options) as response:
            raw = await response.read()
            document = await response.json(content_type=None) if raw else None
            return Answer(response.status, response.headers, document)

    async def good(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        answer = await self.ask(method, path, **options)
        assert answer.status == status, answer.document
        return answer.document

    async def problem(self, method: str, path: str, status: int, **options: Any) -> Any:
        answer = await self.ask(method, path, **options)
        assert answer.status == status, answer.document
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert set(answer.document) <= PROBLEM_FIELDS
        assert answer.document["status"] == status
        kind = answer.document["type"].removeprefix("/problems/")
        assert TEXTS[kind][0] == status
        assert len(answer.document["trace_id"]) == 32
        assert answer.document["detail"].endswith((".", "?"))
        return answer.document

    async def create(self, **fields: Any) -> Any:
        document = {"schedule": "every 1h", "target": HTTP, **fields}
        return await self.good("POST", "/api/v1/jobs", 201, json=document)
