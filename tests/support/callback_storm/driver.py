"""Two nodes, of which one at a time is killed, and a target that reports as a seed says: from an empty folder to a
record."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
from aiohttp import web

from detent.domain.callbacks import PREFIX
from detent.domain.identity import RunKey, run_id
from detent.domain.job import JobSpec
from detent.domain.on_demand import NewRun
from detent.jobs import JobOperations
from detent.store import Database, Store
from detent.store.db import connect
from detent.store.embedded import EmbeddedServer
from tests.support.callback_storm.verdict import (
    FORGED,
    Called,
    EndedRun,
    RecordedAttempt,
    Reported,
    StormRecord,
)
from tests.support.callback_target import AcceptedCall, CallbackTarget, accepts
from tests.support.processes import PRESENT, Node, Nodes
from tests.support.waiting import until

TASKS = 10
LEASE_SECONDS = 2.0
PLAIN_AFTER = 3
DRAIN_SECONDS = 240.0
KINDS = ("early", "plain", "after heartbeats", "doubled", "contrary", "late", "failure", "forged")
STATUSES = {1: "succeeded", 2: "dead", 3: "cancelled", 4: "skipped", 5: "missed"}


class StormScale(NamedTuple):
    runs: int
    ttl: float = 2.0
    concurrency: int = 40


class Storm:
    def __init__(self, folder: Path, scale: StormScale, seed: int, url: str) -> None:
        self.scale = scale
        self.url = url
        self.chance = random.Random(seed)
        self.nodes = Nodes(
            folder, DETENT_DATABASE_URL=url, DETENT_LEASE_TTL_SECONDS=f"{scale.ttl:g}",
            DETENT_REQUIRE_KEYS="true", DETENT_FAILED_KEYS_PER_SECOND="0", DETENT_REQUESTS_PER_SECOND="0",
            DETENT_CONCURRENCY=str(scale.concurrency),
        )  # fmt: skip
        self.present: list[Node] = []
        self.target = CallbackTarget(self.respond)
        self.reports: list[Reported] = []
        self.under_way: set[asyncio.Task[None]] = set()
        self.runs: list[str] = []
        self.kills = 0

    # --- the target ---

    async def respond(self, call: AcceptedCall) -> web.Response:
        kind = "plain" if call.attempt >= PLAIN_AFTER else self.chance.choice(KINDS)
        sending = self.send(call, "complete", kind) if kind == "early" else self._later(call, kind)
        task = asyncio.create_task(sending)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        if kind == "early":
            await asyncio.shield(task)  # its node may be killed while it waits for the answer
        return await accepts(call)

    async def _later(self, call: AcceptedCall, kind: str) -> None:
        await asyncio.sleep(self.chance.uniform(0, 0.3))
        match kind:
            case "after heartbeats":
                for _ in range(4):
                    await self.send(call, "heartbeat", kind)
                    await asyncio.sleep(LEASE_SECONDS / 3)
                await self.send(call, "complete", kind)
            case "doubled":
                await asyncio.gather(*(self.send(call, "complete", kind) for _ in range(2)))
            case "contrary":
                await asyncio.gather(self.send(call, "complete", kind), self.send(call, "fail", kind))
            case "late":
                await until(lambda: self._called_again(call), DRAIN_SECONDS, "the next attempt")
                await self.send(call, "complete", kind)
            case "failure":
                await self.send(call, "fail", kind)
            case "forged":
                for forgery in FORGED:
                    await self.send(call, self.chance.choice(("complete", "fail", "heartbeat")), forgery)
                await self.send(call, "complete", "plain")
            case _:
                await self.send(call, "complete", kind)

    def _called_again(self, call: AcceptedCall) -> bool:
        return any(other.token > call.token for other in self.target.calls_of(call.run_id))

    def _credential(self, call: AcceptedCall, kind: str) -> str | None:
        others = [other for other in self.target.calls if other.run_id != call.run_id]
        match kind:
            case "forged":
                body = list(call.credential.removeprefix(PREFIX))
                place = self.chance.randrange(20, len(body) - 1)
                body[place] = "A" if body[place] != "A" else "B"
                return PREFIX + "".join(body)
            case "of another run":
                return self.chance.choice(others).credential if others else f"{PREFIX}AAAA"
            case "without credential":
                return None
            case _:
                return ""

    async def send(self, call: AcceptedCall, verb: str, kind: str) -> None:
        """Until it is answered: a node may be killed before it does."""
        body: dict[str, Any] = {"error": "broken"} if verb == "fail" else {}
        result = f"{call.token} of {kind}" if kind != "doubled" else f"{call.token}"
        if verb == "complete":
            body["result"] = result
        token = call.token + 1 if kind == "of another token" else None
        credential = self._credential(call, kind)
        while True:
            try:
                address = self.chance.choice(self.present).url
                path = call.url[call.url.index("/api/") :]
                moved = call._replace(url=f"{address}{path}")
                status, document = await self.target.report(moved, verb, credential=credential, token=token, **body)
            except (aiohttp.ClientError, OSError, AssertionError):
                status, document = 503, {}
            if status != 503:
                break
            await asyncio.sleep(0.1)
        answer = msgspec.json.encode(document.get("status")).decode() if status == 200 and verb != "heartbeat" else ""
        self.reports.append(
            Reported(call.run_id, call.token, verb, kind, status, document.get("type", ""), answer, result)
        )

    # --- nodes ---

    async def start_node(self) -> Node:
        node = await self.nodes.start("serve", python=PRESENT)
        await node.says("joined")
        return node

    async def kill_one(self) -> None:
        victim = self.present.pop(0)
        await victim.kill()
        self.kills += 1
        self.present.append(await self.start_node())

    # --- the order of things ---

    async def enqueue(self, store: Store) -> None:
        jobs = JobOperations(store)
        share = self.scale.runs // TASKS
        for number in range(TASKS):
            document = {
                "name": f"report-{number}", "target": self.target.target(lease_seconds=LEASE_SECONDS),
                "max_retries": 50, "retry_base_seconds": 0, "retry_max_seconds": 1, "timeout_seconds": 600,
            }  # fmt: skip
            (job,) = await jobs.registration.add([msgspec.convert(document, JobSpec)])
            runs = await jobs.enqueuing.enqueue_many([NewRun(payload={"n": n}) for n in range(share)], job_id=job.id)
            self.runs += [str(run.id) for run in runs]

    async def play(self, look: Any) -> None:
        for share in (0.25, 0.6):
            await self._reaches(look, share)
            await self.kill_one()
        await self._reaches(look, 1)
        await until(lambda: not self.under_way, DRAIN_SECONDS, "the last report")

    async def _reaches(self, look: Any, share: float) -> None:
        async def reached() -> bool:
            return bool(await look.fetchval("SELECT count(*) FROM run_history") >= share * len(self.runs))

        await until(reached, DRAIN_SECONDS, f"{share:.0%} of the runs to end")

    async def record(self, look: Any) -> StormRecord:
        history = await look.fetch("SELECT job, scheduled_at, serial, status, token, result FROM run_history")
        attempts = await look.fetch("SELECT job, scheduled_at, serial, token, outcome FROM attempts")
        lost = await look.fetchval("SELECT count(*) FROM attempts WHERE outcome IN ('lost', 'stale') AND node > 0")
        left = "SELECT (SELECT count(*) FROM live_runs) + (SELECT count(*) FROM backlog)"
        return StormRecord(
            self.runs,
            [Called(call.run_id, call.attempt, call.token) for call in self.target.calls],
            self.reports,
            [
                EndedRun(_id(row), STATUSES[row["status"]], row["token"], msgspec.json.decode(row["result"] or "null"))
                for row in history
            ],
            [RecordedAttempt(_id(row), row["token"], row["outcome"]) for row in attempts],
            await look.fetchval(left),
            self.kills,
            lost,
        )


def _id(row: Any) -> str:
    return str(run_id(RunKey(row["job"], row["scheduled_at"], row["serial"])))


async def perform(folder: Path, scale: StormScale, seed: int) -> StormRecord:
    async with EmbeddedServer(folder / "server", system_dir=folder / "system") as server:
        storm = Storm(folder, scale, seed, server.url)
        with closing(storm.nodes):
            for command in (("db", "migrate"), ("key", "create", "--local", "--scope", "admin")):
                code, said = await storm.nodes.run(*command, python=PRESENT, DETENT_DATABASE_URL=server.url)
                assert code == 0, said
            look = await connect(server.url, "detent")
            await look.execute(
                "INSERT INTO tenant_targets (tenant, pattern) VALUES (1, 'private') ON CONFLICT DO NOTHING"
            )
            database = Database(server.url)
            await database.open()
            try:
                async with storm.target:
                    storm.present = [await storm.start_node() for _ in range(2)]
                    await storm.enqueue(Store(database))
                    await storm.play(look)
                    return await storm.record(look)
            finally:
                await database.close()
                await look.close()
