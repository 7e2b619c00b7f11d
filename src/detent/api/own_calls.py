"""Refuses calls that nodes send for jobs: a job does not use the cluster it runs in.

Otherwise a key that may only create jobs could make a worker call a node, from an address that this node may trust.
Every call of an HTTP target, notice and ping carries a header that no job can set or remove; clients never send it, so
a handler that calls the API with a key is not refused.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from detent.api import problems
from detent.api.problems import Refusal
from detent.domain.target_rules import CALL_HEADER

# Targets of the demo's jobs; a server without the demo has nothing there.
_DEMO = re.compile(rb"/demo/[a-z]+")
_HEADER = CALL_HEADER.lower().encode()


class OwnCallGuard:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_own_call(scope):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        await problems.answer(_refusal(headers[CALL_HEADER]), headers)(scope, receive, send)


def _is_own_call(scope: Scope) -> bool:
    if not any(name == _HEADER for name, _ in scope["headers"]):
        return False
    return _DEMO.fullmatch(scope.get("raw_path") or scope["path"].encode()) is None


def _refusal(kind: str) -> Refusal:
    return Refusal(
        403,
        "own-call",
        f"This is a call of a {kind if kind in ('notice', 'ping') else 'job'}, and jobs cannot use the server of their "
        "own cluster: call the API from a handler or another program, with a key.",
    )
