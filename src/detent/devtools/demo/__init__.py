"""A little life for the first look: `make run`, which is `detent serve --demo`."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from detent.sdk.app import Detent
from detent.targets.run import HandlerRun

MOST = 60_000.0
GREETINGS = ("hello", "bonjour", "hallo", "hola", "ciao")


class FirstLook:
    """What `detent serve --demo` adds to a node: three jobs, and the endpoint that one of them calls."""

    def app(self, url: str) -> Detent:
        return demo_app(f"{url}/demo/echo")

    def add_routes(self, app: Any) -> None:
        add_echo(app)


def demo_app(echo_url: str) -> Detent:
    """Three jobs: a function every 5 s, an HTTP call to our own echo, and one that fails twice before it succeeds."""
    app = Detent("demo")

    @app.job(name="demo-greeting", every="5s", tags=["demo"])
    def greet(run: HandlerRun) -> str:
        return GREETINGS[int(run.scheduled_at.timestamp() // 5) % len(GREETINGS)]

    @app.job(name="demo-flaky", every="20s", max_retries=3, retry_base_seconds=1, tags=["demo"])
    async def flaky(run: HandlerRun) -> str:
        if run.attempt < 3:
            raise ConnectionError(f"attempt {run.attempt} of this demo fails on purpose")
        return f"succeeded at attempt {run.attempt}"

    app.jobs.append(
        {
            "name": "demo-echo",
            "schedule": {"every": "10s"},
            "target": {"type": "http", "url": echo_url},
            "payload": {"greeting": "from detent"},
            "tags": ["demo"],
        }
    )
    return app


def add_echo(app: Any) -> None:
    """An endpoint that answers with what it was sent; `ms` in its query makes it slow, `fail` out of a hundred times it
    answers 503."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response

    async def echo(request: Request) -> Response:
        body = await request.body()
        key = request.headers.get("idempotency-key")
        await asyncio.sleep(_number(request.query_params.get("ms")) / 1000 * random.uniform(0.5, 1.5))
        if random.uniform(0, 100) < _number(request.query_params.get("fail")):
            return PlainTextResponse("this demo fails now and then, on purpose", 503)
        return JSONResponse({"echo": body.decode(errors="replace")[:2000], "idempotency_key": key})

    app.add_route("/demo/echo", echo, methods=["POST"])


def _number(text: str | None) -> float:
    return min(float(text), MOST) if text and text.isdecimal() and len(text) < 9 else 0.0
