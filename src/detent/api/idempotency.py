"""Requests that may be sent again: with an Idempotency-Key, the second gets the answer of the first.

The client chooses the key, which is valid for a day. The same key with another request is refused (422), and while the
first request is still in progress the second is too (409). Only successful requests are stored: a request that was
refused may be corrected and sent again with its key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from detent.api.context import Api
from detent.api.problems import Refusal
from detent.runtime import failpoints
from detent.store.job_limits import job_limits
from detent.store.requests import StoredAnswer

HEADER = "Idempotency-Key"
PATTERN = r"^[!-~]{1,255}$"
_KEY = re.compile(PATTERN)
# A batch of ten thousand jobs is read inside the transaction, which may take seconds on a busy machine.
IDLE = timedelta(seconds=2)
IDLE_PER_BYTE = timedelta(microseconds=5)
LONGEST_IDLE = timedelta(seconds=60)

Serve = Callable[[], Awaitable[Response]]


async def served_once(api: Api, request: Request, raw: bytes, serve: Serve, *, registers: bool) -> Response:
    """Serve a request, unless the same one was served before; `raw` is its body. `registers`: it registers jobs."""
    await failpoints.hit("A1")
    key = request.headers.get(HEADER)
    response = await (serve() if key is None else _with_key(api, request, raw, serve, key, registers))
    await failpoints.hit("A2")
    return response


async def _with_key(api: Api, request: Request, raw: bytes, serve: Serve, key: str, registers: bool) -> Response:
    if not _KEY.fullmatch(key):
        detail = f"The header {HEADER} must have 1 to 255 visible ASCII characters, such as those of a UUID."
        raise Refusal(400, "malformed-request", detail)

    async def work() -> StoredAnswer:
        response = await serve()
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        return StoredAnswer(response.status_code, headers, bytes(response.body))

    idle = min(IDLE + len(raw) * IDLE_PER_BYTE, LONGEST_IDLE)
    digest = _digest(request, raw)
    answer, again = await api.store.requests.once(key, digest, work, tenant=api.tenant, idle=idle, registers=registers)
    response = Response(answer.body, answer.status, answer.headers)
    if again:
        response.headers["Idempotent-Replayed"] = "true"
    return response


def _digest(request: Request, raw: bytes) -> bytes:
    """Of the request, and of the jobs that its caller is limited to: another's answer may be about other jobs."""
    head = f"{request.method} {request.scope['path']}?{request.scope['query_string'].decode('latin-1')}\n"
    return hashlib.sha256(head.encode() + raw + (job_limits() or "").encode()).digest()
