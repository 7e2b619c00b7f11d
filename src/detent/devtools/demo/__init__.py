"""The live demo: `make run`, which is `detent serve --demo`."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

from detent.domain.run import Call, Failed, NotBegun, Outcome
from detent.domain.text import visible
from detent.sdk.app import Detent
from detent.targets.run import HandlerRun
from detent.worker.execute import Runner

MOST = 60_000.0
GREETINGS = ("hello", "bonjour", "hallo", "hola", "ciao")


class LiveDemo:
    """What `detent serve --demo` adds to a node: three jobs, the endpoint that one of them calls, and a line on the
    terminal for each attempt that ends."""

    def app(self, url: str) -> Detent:
        return demo_app(f"{url}/demo/echo")

    def add_routes(self, app: Any) -> None:
        add_echo(app)

    def reporting(self, runners: dict[Any, Runner]) -> dict[Any, Runner]:
        return {kind: ReportingRunner(runner) for kind, runner in runners.items()}


class ReportingRunner:
    """Calls a runner, and prints job, status and duration of each attempt."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.keeps_time = getattr(runner, "keeps_time", False)

    async def __call__(self, call: Call) -> Outcome | NotBegun:
        began = time.monotonic()
        outcome = await self._runner(call)
        if not isinstance(outcome, NotBegun):
            sys.stderr.write(f"{visible(report(call, outcome, time.monotonic() - began), '')}\n")
        return outcome


def report(call: Call, outcome: Outcome, seconds: float) -> str:
    """`12:00:05  demo-greeting    succeeded    3 ms`"""
    failed = isinstance(outcome, Failed)
    attempt = f"  attempt {call.attempt}" if failed or call.attempt > 1 else ""
    why = f": {outcome.error}" if isinstance(outcome, Failed) else ""
    status = "failed" if failed else "succeeded"
    return f"{time.strftime('%H:%M:%S')}  {call.job:<20} {status:<10} {seconds * 1000:5.0f} ms{attempt}{why}"


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
    """An endpoint that echoes its request. The query parameter `ms` delays the answer; `fail` is the percentage of
    503s."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response

    async def echo(request: Request) -> Response:
        body = await request.body()
        key = request.headers.get("idempotency-key")
        await asyncio.sleep(_number(request.query_params.get("ms")) / 1000 * random.uniform(0.5, 1.5))
        if random.uniform(0, 100) < _number(request.query_params.get("fail")):
            return PlainTextResponse("this demo endpoint fails sometimes, on purpose", 503)
        return JSONResponse({"echo": body.decode(errors="replace")[:2000], "idempotency_key": key})

    app.add_route("/demo/echo", echo, methods=["POST"])


def _number(text: str | None) -> float:
    return min(float(text), MOST) if text and text.isdecimal() and len(text) < 9 else 0.0
