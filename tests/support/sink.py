"""A target that remembers every call: what came, when, and what it answered.

It runs in a thread of its own, so that the time of a call's arrival does not depend on what a test is doing. What it
does with a call is in the path:

    /ok          apply the effect and answer with it
    /fail/K      answer 503 to the first K calls of a key, then as /ok
    /slow/S      apply the effect, answer after S seconds
    /hang        apply the effect, answer when released
    /hang-again  as /ok for the first call of a key, as /hang for later ones

An effect is applied once per key, as a target does that deduplicates: a later call with the same key is answered with
the first call's effect. The raw calls are all kept.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aiohttp import web


class Received(NamedTuple):
    """One call as it arrived; `at` is seconds since 1970 on this machine's clock."""

    key: str
    run_id: str
    job: str
    scheduled_at: datetime
    attempt: int
    token: int
    body: str
    at: float

    @property
    def lateness(self) -> float:
        return self.at - self.scheduled_at.timestamp()


class Sink:
    def __init__(self) -> None:
        self.calls: list[Received] = []
        self.effects: dict[str, str] = {}
        self.answered: list[str] = []
        self.url = ""
        self._failures: defaultdict[str, int] = defaultdict(int)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sink", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._released: asyncio.Event
        self._over: asyncio.Event

    def __enter__(self) -> Sink:
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def release(self) -> None:
        """Let everything that hangs be answered, and what comes later too."""
        self._loop.call_soon_threadsafe(self._released.set)

    def of(self, job: str) -> list[Received]:
        return [call for call in self.calls if call.job == job]

    def by_run(self) -> dict[str, list[Received]]:
        return _grouped((call.run_id, call) for call in self.calls)

    def by_key(self) -> dict[str, list[Received]]:
        return _grouped((call.key, call) for call in self.calls)

    def arrived(self, call: Received, effect: str) -> None:
        """A hook for subclasses that record each call; `effect` is empty when the call is refused."""

    # --- the server ---

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._released, self._over = asyncio.Event(), asyncio.Event()
        application = web.Application()
        application.router.add_route("*", "/{mode}", self._take)
        application.router.add_route("*", "/{mode}/{argument}", self._take)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        # Two workers may connect for all their runs at once. What has no place in a queue of 128, the kernel repeats
        # after a second, and a run would seem late.
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._started.set()
        await self._over.wait()
        self._released.set()
        await runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        at = time.time()
        call = _received(request, await request.text(), at)
        self.calls.append(call)
        mode, argument = request.match_info["mode"], request.match_info.get("argument", "")
        if mode == "fail" and self._failures[call.key] < int(argument):
            self._failures[call.key] += 1
            self.arrived(call, "")
            return web.Response(status=503, text="not yet")
        hangs = mode == "hang" or (mode == "hang-again" and call.key in self.effects)
        effect = self.effects.setdefault(call.key, f"effect {len(self.effects) + 1}")
        self.arrived(call, effect)
        if mode == "slow":
            await asyncio.sleep(float(argument))
        elif hangs:
            await self._released.wait()
        self.answered.append(call.key)
        return web.Response(text=effect)


def _received(request: web.Request, body: str, at: float) -> Received:
    headers = request.headers
    scheduled_at = datetime.fromisoformat(headers["Detent-Scheduled-At"]).astimezone(UTC)
    return Received(
        headers["Idempotency-Key"],
        headers["Detent-Run-Id"],
        headers["Detent-Job"],
        scheduled_at,
        int(headers["Detent-Attempt"]),
        int(headers["Detent-Token"]),
        body,
        at,
    )


def _grouped(pairs: Iterable[tuple[str, Received]]) -> dict[str, list[Received]]:
    groups: dict[str, list[Received]] = {}
    for name, call in pairs:
        groups.setdefault(name, []).append(call)
    return groups


def http_target(sink: Sink, mode: str = "ok", **fields: Any) -> dict[str, Any]:
    return {"type": "http", "url": f"{sink.url}/{mode}", **fields}
