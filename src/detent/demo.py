"""A little life for the first look: `make run`, which is `detent serve --demo`."""

from __future__ import annotations

from typing import Any

from detent.run import Run
from detent.sdk import Detent

GREETINGS = ("hello", "bonjour", "hallo", "hola", "ciao")


def demo_app(echo_url: str) -> Detent:
    """Three jobs: a function every 5 s, an HTTP call to our own echo, and one that fails twice before it succeeds."""
    app = Detent("demo")

    @app.job(name="demo-greeting", every="5s", tags=["demo"])
    def greet(run: Run) -> str:
        return GREETINGS[int(run.scheduled_at.timestamp() // 5) % len(GREETINGS)]

    @app.job(name="demo-flaky", every="20s", max_retries=3, retry_base_seconds=1, tags=["demo"])
    async def flaky(run: Run) -> str:
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
    """An endpoint that answers with what it was sent."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    async def echo(request: Request) -> JSONResponse:
        body = await request.body()
        key = request.headers.get("idempotency-key")
        return JSONResponse({"echo": body.decode(errors="replace")[:2000], "idempotency_key": key})

    app.add_route("/demo/echo", echo, methods=["POST"])
