"""A host that does not answer: its runs wait without using up attempts, others do not, and it is visible why."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from detent.cluster.operations import ClusterOperations
from detent.domain.identity import RunKey
from detent.domain.target_access import PRIVATE_TOO
from detent.jobs.serving import ServingCheck
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.live_runs import LiveRunStore
from detent.targets.breaker import HostBreakers
from detent.targets.host_loads import HostLoads
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from detent.telemetry.metrics import Metrics
from detent.worker import circuits
from tests.support.factories import LONG_AGO, add_job, add_queue, add_task
from tests.support.tenants import add_ready
from tests.support.waiting import until

LIMIT = 3
RUNS = 60
SLOTS = 10


@pytest.fixture
def host() -> int:
    """A port that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def session(
    store: Store, metrics: Metrics, looking_often: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Session]:
    monkeypatch.setattr(circuits, "REPORT_EVERY", 0.1)
    breakers = HostBreakers(LIMIT, 2.0, metrics, loads=HostLoads(SLOTS, 0.2))
    runner = HttpTargetRunner(FixedPolicy(PRIVATE_TOO), breakers=breakers)
    session = Session(
        store, Settings(concurrency=SLOTS), ("worker",), {"http": runner}, [], metrics=metrics, breakers=breakers
    )
    await session.open()
    yield session
    if not session.closed:
        await session.close(0)
    await runner.close()


def definition(port: int, **fields: Any) -> dict[str, Any]:
    return {"target": {"type": "http", "url": f"http://127.0.0.1:{port}/hook"}, "max_retries": 5, **fields}


@asynccontextmanager
async def answering(port: int) -> AsyncIterator[None]:
    """The host is back: it answers every call."""

    async def fine(_request: web.BaseRequest) -> web.Response:
        return web.Response(text="fine")

    runner = web.ServerRunner(web.Server(fine))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def failed_attempts(look: Any) -> int:
    count: int = await look.fetchval("SELECT count(*) FROM attempts WHERE outcome <> 'succeeded'")
    return count


async def all_succeeded(look: Any, count: int = RUNS) -> bool:
    rows = await look.fetch("SELECT status FROM run_history")
    return [row["status"] for row in rows] == [1] * count


async def test_ticks_of_a_dead_host_wait_and_all_succeed_when_it_is_back(
    store: Store, look: Any, session: Session, metrics: Metrics, host: int
) -> None:
    job = await add_job(look, None, definition=definition(host, schedule="every 1h", retry_base_seconds=0.1))
    await add_ready(look, job, await add_queue(look), RUNS)
    session.wakeups.runs_ready()
    await until(lambda: metrics.put_off >= RUNS, 30, "runs that are put off")
    waiting = await look.fetch("SELECT attempt, owner, not_before > now() AS later FROM live_runs WHERE attempt = 1")
    assert len(waiting) >= RUNS - LIMIT - 5
    assert metrics.circuits_open == metrics.circuits_opened == 1
    async with answering(host):
        await until(lambda: all_succeeded(look), 30, "the end of all runs")
    probes = await failed_attempts(look) - LIMIT
    assert 0 <= probes <= 6
    assert metrics.circuits_open == 0


async def test_runs_of_a_host_whose_circuit_is_open_take_no_slot_and_come_in_larger_claims(
    look: Any, session: Session, metrics: Metrics, host: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []
    usual = LiveRunStore.claim

    async def claim(
        self: LiveRunStore, node: int, incarnation: int, queues: Sequence[int], limit: int, **way: Any
    ) -> Any:
        limits.append(limit)
        return await usual(self, node, incarnation, queues, limit, **way)

    monkeypatch.setattr(LiveRunStore, "claim", claim)
    job = await add_job(look, None, definition=definition(host, schedule="every 1h", timeout_seconds=5))
    await add_ready(look, job, await add_queue(look), RUNS * 10)
    session.wakeups.runs_ready()
    await until(lambda: metrics.put_off >= RUNS * 10, 30, "runs that are put off")
    assert metrics.starts <= RUNS
    assert max(limits) > 4 * SLOTS  # half of them would wait in memory, if they could be called


async def test_a_host_that_hangs_leaves_slots_for_hosts_that_answer(
    look: Any, session: Session, metrics: Metrics, host: int
) -> None:
    """Its calls take longer than the test, so no circuit opens."""
    async with answering(host), hanging() as (silent, calls):
        live = await add_job(look, None, name="live", definition=definition(host, schedule="every 1h"))
        dead = await add_job(look, None, name="dead", definition=definition(silent, schedule="every 1h"))
        queue = await add_queue(look)
        await add_ready(look, live, queue, 1)
        session.wakeups.runs_ready()
        await until(lambda: all_succeeded(look, 1), 30, "a call of the host that answers")
        await add_ready(look, dead, queue, RUNS)
        session.wakeups.runs_ready()
        await until(lambda: metrics.put_off >= RUNS - SLOTS, 30, "runs that are put off")
        assert len(calls) == 8
        await add_ready(look, live, queue, 20, at=LONG_AGO + timedelta(days=1))
        session.wakeups.runs_ready()
        await until(lambda: all_succeeded(look, 21), 30, "the runs of the host that answers")
        assert await failed_attempts(look) == 0


@asynccontextmanager
async def hanging() -> AsyncIterator[tuple[int, list[asyncio.StreamWriter]]]:
    """A host that accepts connections and never answers: its port, and the calls."""
    calls: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _reader, writer: calls.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], calls
    finally:
        for writer in calls:
            writer.close()
        server.close()


async def test_runs_that_may_be_called_only_once_wait_too_and_are_called_when_it_is_back(
    look: Any, session: Session, metrics: Metrics, host: int
) -> None:
    job = await add_job(look, None, definition=definition(host, schedule="every 1h", delivery="at_most_once"))
    async with look.transaction():
        await add_ready(look, job, await add_queue(look), RUNS)
        await look.execute("UPDATE live_runs SET once = true")
    session.wakeups.runs_ready()
    await until(lambda: metrics.put_off >= RUNS, 30, "runs that are put off")

    async def all_ended() -> bool:
        return int(await look.fetchval("SELECT count(*) FROM run_history")) == RUNS

    async with answering(host):
        await until(all_ended, 30, "the end of all runs")
    dead = await look.fetchval("SELECT count(*) FROM run_history WHERE status = 2")
    called = await look.fetchval("SELECT count(*) FROM attempts WHERE error LIKE 'No connection%'")
    assert LIMIT <= dead == called <= LIMIT + 6  # those whose call failed, and no other


async def test_on_demand_runs_of_a_dead_host_wait_in_the_backlog(
    look: Any, session: Session, metrics: Metrics, host: int
) -> None:
    await add_task(look, name="mail", definition=definition(host, retry_base_seconds=0.1))
    await look.fetch("SELECT enqueue_many('mail', $1)", json.dumps([{"payload": n} for n in range(RUNS)]))
    session.wakeups.runs_enqueued(None)
    await until(lambda: metrics.put_off >= RUNS, 30, "runs that are put off")
    async with answering(host):
        await until(lambda: all_succeeded(look), 30, "the end of all runs")
    assert await look.fetchval("SELECT count(*) FROM backlog") == 0
    assert await look.fetchval("SELECT count(*) FROM run_history WHERE attempt = 1") >= RUNS - await failed_attempts(
        look
    )


async def test_a_run_that_cannot_be_put_off_does_not_keep_the_others_waiting(
    look: Any, session: Session, metrics: Metrics, host: int
) -> None:
    await add_task(look, name="mail", definition=definition(host, retry_base_seconds=0.1))
    async with look.transaction():
        await look.fetch("SELECT enqueue_many('mail', $1)", json.dumps([{"payload": n} for n in range(RUNS)]))
        await look.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.payload::text = '17'"
            " AND EXISTS (SELECT FROM nodes WHERE circuits IS NOT NULL) THEN"
            " RAISE EXCEPTION 'refused' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$"
        )
        await look.execute("CREATE TRIGGER refuse BEFORE INSERT ON backlog FOR EACH ROW EXECUTE FUNCTION refuse()")
    session.wakeups.runs_enqueued(None)
    await until(lambda: metrics.put_off >= 2 * RUNS, 30, "runs that are put off")
    async with answering(host):

        async def nearly_all() -> bool:
            return int(await look.fetchval("SELECT count(*) FROM run_history WHERE status = 1")) >= RUNS - 1

        await until(nearly_all, 30, "the end of the others")


async def test_it_is_said_which_host_does_not_answer_and_until_when_its_runs_wait(
    store: Store, look: Any, session: Session, metrics: Metrics, host: int
) -> None:
    job = await add_job(look, None, definition=definition(host, schedule="every 1h"))
    await add_ready(look, job, await add_queue(look), RUNS)
    session.wakeups.runs_ready()

    async def problems() -> list[str]:
        found = (await ClusterOperations(store).describe(operator=True)).problems
        return [each for each in found if "does not answer" in each]

    await until(problems, 30, "the problem")
    (problem,) = await problems()
    assert problem.startswith(f"127.0.0.1:{host} does not answer since ")
    assert (await ClusterOperations(store).describe(operator=False)).nodes[0].circuits is None

    async def sentence() -> str | None:
        row = await look.fetchrow(
            "SELECT job, scheduled_at, serial FROM live_runs WHERE owner IS NULL AND attempt = 1"
            " AND not_before > now() + interval '0.2 seconds' LIMIT 1"
        )
        if row is None:
            return None
        key = RunKey(*row.values())
        run = await store.runs.get(key)
        assert run is not None
        return await ServingCheck(store).waiting_for(run, key)

    await until(sentence, 30, "a run that waits")
    said = await sentence()
    assert said is None or said.startswith(f"127.0.0.1:{host} does not answer since ")


async def test_runs_that_are_being_put_off_are_returned_when_the_node_stops(
    look: Any, session: Session, metrics: Metrics, host: int
) -> None:
    job = await add_job(look, None, definition=definition(host, schedule="every 1h"))
    await add_ready(look, job, await add_queue(look), RUNS)
    session.wakeups.runs_ready()
    await until(lambda: metrics.circuits_opened, 30, "the circuit")
    await session.close(5)
    assert await look.fetchval("SELECT count(*) FROM live_runs WHERE owner IS NULL") == RUNS
    assert await look.fetchval("SELECT max(crashes) FROM live_runs") == 0
