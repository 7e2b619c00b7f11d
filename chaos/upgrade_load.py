"""What callers do while a cluster is upgraded: they trigger jobs at all nodes, and enqueue runs by themselves."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from detent.client import JsonClient
from detent.domain.identity import decode_run_id
from detent.errors import DetentError
from tests.support import factories
from tests.support.processes import Node
from tests.support.sink import Sink
from tests.support.waiting import until

TASK = "on-demand"
TRIGGER_EVERY, ENQUEUE_EVERY, PROBE_EVERY = 0.1, 0.02, 0.005
ROLLED_BACK_OF = 5
CREATE_TABLE = "CREATE TABLE public.orders (reference integer PRIMARY KEY, run uuid NOT NULL)"
ENDED = (
    "SELECT run_id(job, scheduled_at, serial)::text AS run, string_agg(status || coalesce(' ' || reason, ''), ', ')"
    " AS ends FROM runs GROUP BY 1"
)
SUCCEEDED = "succeeded"


class RegretError(Exception):
    """The caller rolls back."""


class Triggered(NamedTuple):
    run: str
    number: int
    on_demand: bool
    """Whether a node of the new version made it."""


class Callers:
    """`jobs`: names of jobs with a schedule, which are enqueued as well as the task."""

    def __init__(self, url: str, nodes: Callable[[], Sequence[Node]], jobs: Sequence[str]) -> None:
        self._url = url
        self._nodes = nodes
        self._jobs = jobs
        self._numbers = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []
        self._over = False
        self.triggered: list[Triggered] = []
        self.enqueued: dict[str, int] = {}
        self.rolled_back: set[int] = set()
        self.skipped = 0
        self.refused = 0
        """Enqueues that were refused because of an old node."""
        self.longest_wait = 0.0

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.append(asyncio.create_task(work()))

    async def end(self) -> None:
        """Each finishes what it has begun. A caller that failed fails the script."""
        self._over = True
        await asyncio.gather(*self._tasks)

    # --- what they do ---

    async def trigger(self) -> None:
        while not self._over:
            await asyncio.sleep(TRIGGER_EVERY)
            node = random.choice(self._nodes())
            number = next(self._numbers)
            with suppress(DetentError):  # of a node that was just killed or stopped
                run = await asyncio.to_thread(node.client.trigger_job, random.choice(self._jobs), {"trigger": number})
                by_new = is_on_demand(run["id"])
                # The version before on-demand runs records a trigger that finds no free lane as skipped, and says so.
                if not by_new and run["status"] == "skipped":
                    self.skipped += 1
                else:
                    self.triggered.append(Triggered(run["id"], number, by_new))

    async def enqueue(self) -> None:
        connection = await asyncpg.connect(self._url)
        try:
            while not self._over:
                await asyncio.sleep(ENQUEUE_EVERY)
                try:
                    await self._order(connection)
                except asyncpg.ObjectNotInPrerequisiteStateError:
                    self.refused += 1
        finally:
            await connection.close()

    async def _order(self, connection: Any) -> None:
        number = next(self._numbers)
        task = random.choice((TASK, TASK, random.choice(self._jobs)))
        with suppress(RegretError):
            async with connection.transaction():
                enqueue = "SELECT run::text FROM detent.enqueue($1, $2::jsonb)"
                run = await connection.fetchval(enqueue, task, json.dumps({"order": number}))
                await connection.execute("INSERT INTO public.orders VALUES ($1, $2::text::uuid)", number, run)
                if number % ROLLED_BACK_OF == 0:
                    self.rolled_back.add(number)
                    raise RegretError
            self.enqueued[run] = number

    async def probe(self) -> None:
        """How long a statement on the live runs has to wait for its lock."""
        connection = await asyncpg.connect(self._url)
        try:
            while not self._over:
                began = time.monotonic()
                await connection.fetchval("SELECT count(*) FROM detent.live_runs")
                self.longest_wait = max(self.longest_wait, time.monotonic() - began)
                await asyncio.sleep(PROBE_EVERY)
        finally:
            await connection.close()


async def prepare(look: Any, target: dict[str, Any]) -> None:
    """The task is written into the tables: the API refuses one while old nodes are there."""
    await look.execute(CREATE_TABLE)
    await factories.add_task(
        look, name=TASK, definition={"target": target, "max_retries": 5, "retry_base_seconds": 0.1}
    )


def refusal(client: JsonClient, name: str, target: dict[str, Any]) -> str:
    """Why a task cannot be created, or nothing."""
    try:
        client.create_job({"name": name, "target": target})
    except DetentError as error:
        return str(error)
    return ""


def is_on_demand(run: str) -> bool:
    key = decode_run_id(UUID(run))
    return key is not None and key.on_demand


# --- what must hold ---


async def none_waiting(look: Any) -> None:
    async def backlog_empty() -> bool:
        return not await look.fetchval("SELECT count(*) FROM backlog")

    await until(backlog_empty, 60, "all runs that wait to start")


async def not_ended_once(look: Any, runs: Sequence[str]) -> list[str]:
    """Runs that did not end, ended twice or did not succeed, with their ends."""
    ended = {row["run"]: row["ends"] for row in await look.fetch(ENDED)}
    return [f"{run}: {ended.get(run)}" for run in runs if ended.get(run) != SUCCEEDED]


def wrong_calls(callers: Callers, sink: Sink) -> list[str]:
    """Calls of orders that were rolled back, or with the payload of another one; and runs without a call."""
    wanted = {run: {"order": number} for run, number in callers.enqueued.items()}
    wanted |= {each.run: {"trigger": each.number} for each in callers.triggered}
    bodies = {call.run_id: json.loads(call.body) if call.body else None for call in sink.calls}
    found = [f"{run} was called with {bodies.get(run)}" for run, body in wanted.items() if bodies.get(run) != body]
    orders = {body.get("order") for body in bodies.values() if isinstance(body, dict)}
    return found + [f"the order {number} was rolled back, and called" for number in callers.rolled_back & orders]
