"""One tenant's calls hang, on a worker of ten slots: those of other tenants start. Events and counts, no times."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import pytest
from aiohttp.abc import ResolveResult

from detent import Detent, Run
from detent.domain.identity import first_token
from detent.domain.job import JobSpec, PythonTarget
from detent.domain.run import Call, NotBegun, Outcome, Succeeded
from detent.domain.target_access import PUBLIC_ONLY
from detent.jobs import JobOperations
from detent.scheduler.scheduler import MAX_READ
from detent.store import Store
from detent.store.cursors import Cursor
from detent.store.upkeep import JOBS_CHANNEL, RUNS_CHANNEL
from detent.targets.gate import calling_tenant
from detent.targets.http import HttpTargetRunner
from detent.targets.lookup import TenantResolver
from detent.targets.messenger import Message, Messenger
from detent.targets.policies import FixedPolicy
from detent.targets.python import HandlerThread, PythonTargetRunner
from detent.upkeep.notices import SENT_AT_ONCE, TAKEN_FOR
from detent.worker import worker
from detent.worker.slots import STARTED_AT_ONCE
from tests.support.tenants import HTTP, add_job, add_ready, add_tenant
from tests.support.waiting import until
from tests.targets.target_helpers import failed, http_call

SLOTS, HEADROOM = 10, 2


class Calls:
    """Calls of the jobs named in `hangs` end when they are released."""

    def __init__(self, *hangs: str) -> None:
        self.running: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.released: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._hangs = hangs

    async def __call__(self, call: Call) -> Outcome:
        self.running[call.job] += 1
        try:
            if call.job in self._hangs:
                await self.released[call.job].wait()
        finally:
            self.running[call.job] -= 1
        self.ended[call.job] += 1
        return Succeeded()


async def wait_until_full(session: Any, calls: Calls, job: str, count: int) -> None:
    """This many calls of the job run, others wait in memory, and none of those may start."""
    await until(lambda: calls.running[job] == count and session.worker.slots.waiting, what=f"{count} calls of {job}")
    await asyncio.sleep(0)
    assert calls.running[job] == count


async def queue_runs(store: Store, look: Any, job: tuple[int, int], count: int) -> None:
    await add_ready(look, *job, count)
    await store.upkeep.wake(RUNS_CHANNEL, "ready")


async def fire_now(store: Store, look: Any, job: int) -> None:
    await look.execute(
        "UPDATE cursors SET next_tick = now(), fire_at = now(), generation = generation + 1 WHERE job = $1", job
    )
    await store.upkeep.wake(JOBS_CHANNEL, str(job))


@pytest.fixture
def without_polling(monkeypatch: pytest.MonkeyPatch, looking_often: None) -> None:
    """Whatever starts, starts because of an event."""
    monkeypatch.setattr(worker, "POLL_EVERY", 600.0)


async def test_a_tenant_whose_calls_hang_leaves_slots_for_the_claimed_runs_of_another(
    look: Any, store: Store, start: Any, without_polling: None
) -> None:
    """Its backlog fills the slots and the memory of the worker, and more waits in the queue."""
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    drop = await add_job(store, look, quiet, "drop")
    await add_ready(look, *await add_job(store, look, noisy, "flood"), 15 * SLOTS)
    calls = Calls("flood")
    session = await start(calls, concurrency=SLOTS, queues=("default",))
    await wait_until_full(session, calls, "flood", SLOTS - HEADROOM)
    assert session.worker.load()["tenants_held_back"] == 1
    await queue_runs(store, look, drop, 3 * SLOTS)
    await until(lambda: calls.ended["drop"] == 3 * SLOTS, what="all runs of the quiet tenant")
    assert calls.running["flood"] == SLOTS - HEADROOM and not calls.ended["flood"]


async def test_a_tenant_whose_calls_hang_leaves_slots_for_the_ticks_of_another(
    look: Any, store: Store, start: Any, without_polling: None
) -> None:
    """They are handed to the worker directly, although runs of the other tenant wait in their queue."""
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    drop, _ = await add_job(store, look, quiet, "drop")
    await add_ready(look, *await add_job(store, look, noisy, "flood"), 15 * SLOTS)
    calls = Calls("flood", "drop")
    session = await start(calls, concurrency=SLOTS)
    await wait_until_full(session, calls, "flood", SLOTS - HEADROOM)
    await fire_now(store, look, drop)
    await until(lambda: calls.running["drop"] == 1, what="the tick of the quiet tenant")
    token = await look.fetchval("SELECT token FROM live_runs WHERE job = $1", drop)
    assert token == first_token(session.membership.incarnation)
    calls.released["drop"].set()
    await until(lambda: calls.ended["drop"] == 1)
    assert calls.running["flood"] == SLOTS - HEADROOM and not calls.ended["flood"]


async def test_ticks_that_hang_leave_slots_for_the_ticks_of_another(look: Any, store: Store, start: Any) -> None:
    """Nothing was ever claimed: all runs came from the fire of the same node."""
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    floods = [await add_job(store, look, noisy, f"flood-{n}") for n in range(3 * SLOTS)]
    drop, _ = await add_job(store, look, quiet, "drop")
    names = [f"flood-{n}" for n in range(3 * SLOTS)]
    calls = Calls(*names)
    session = await start(calls, concurrency=SLOTS)
    await until(lambda: len(session.worker._claiming.tenants) == 2 and not session.worker._intake.backlog)
    await look.execute(
        "UPDATE cursors SET next_tick = now(), fire_at = now(), generation = generation + 1 WHERE job = ANY ($1)",
        [job for job, _ in floods],
    )
    await store.upkeep.wake(JOBS_CHANNEL, ",".join(str(job) for job, _ in floods))
    await until(lambda: calls.running.total() == SLOTS - HEADROOM and session.worker.slots.waiting)
    await fire_now(store, look, drop)
    await until(lambda: calls.ended["drop"] == 1, what="the tick of the quiet tenant")
    assert calls.running.total() == SLOTS - HEADROOM and calls.ended.total() == 1


async def test_a_tenant_with_a_limit_finds_a_slot_beside_one_whose_calls_hang(
    look: Any, store: Store, start: Any, without_polling: None
) -> None:
    noisy = await add_tenant(store, "noisy", max_concurrent=15 * SLOTS)
    quiet = await add_tenant(store, "quiet", max_concurrent=SLOTS)
    drop = await add_job(store, look, quiet, "drop")
    await add_ready(look, *await add_job(store, look, noisy, "flood"), 15 * SLOTS)
    calls = Calls("flood")
    session = await start(calls, concurrency=SLOTS)
    await until(lambda: calls.running["flood"] == SLOTS - HEADROOM)
    await queue_runs(store, look, drop, 3 * SLOTS)
    await until(lambda: calls.ended["drop"] == 3 * SLOTS, what="all runs of the quiet tenant")
    assert calls.running["flood"] == SLOTS - HEADROOM and session.worker.slots.running == SLOTS - HEADROOM


async def test_two_tenants_whose_calls_hang_leave_a_slot_for_a_third(
    look: Any, store: Store, start: Any, without_polling: None
) -> None:
    hanging = ("one", "two")
    jobs = [await add_job(store, look, await add_tenant(store, name), name) for name in hanging]
    drop = await add_job(store, look, await add_tenant(store, "quiet"), "drop")
    calls = Calls(*hanging)
    await start(calls, concurrency=SLOTS)
    await queue_runs(store, look, jobs[0], 5 * SLOTS)
    await until(lambda: calls.running["one"] == SLOTS - HEADROOM)
    await queue_runs(store, look, jobs[1], 5 * SLOTS)
    await until(lambda: calls.running["two"] == 1)
    await queue_runs(store, look, drop, 5)
    await until(lambda: calls.ended["drop"] == 5, what="the runs of the third tenant")
    assert calls.running == {"one": SLOTS - HEADROOM, "two": 1, "drop": 0}


async def test_a_tenant_that_is_alone_takes_every_slot(look: Any, store: Store, start: Any) -> None:
    """Others have a queue but no job: nothing is kept for them."""
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    await add_job(store, look, quiet, "drop")
    job_id = await look.fetchval("SELECT id FROM jobs WHERE name = 'drop'")
    await JobOperations(store).lifecycle.delete(job_id, tenant=quiet)
    await add_ready(look, *await add_job(store, look, noisy, "flood"), 3 * SLOTS)
    calls = Calls("flood")
    await start(calls, concurrency=SLOTS)
    await until(lambda: calls.running["flood"] == SLOTS)


async def test_a_tenant_grows_again_when_the_others_are_idle_and_when_they_are_gone(
    look: Any, store: Store, start: Any, without_polling: None
) -> None:
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    flood, drop = await add_job(store, look, noisy, "flood"), await add_job(store, look, quiet, "drop")
    calls = Calls("flood", "drop")
    session = await start(calls, concurrency=SLOTS)
    await queue_runs(store, look, drop, 4)
    await until(lambda: calls.running["drop"] == 4)
    await queue_runs(store, look, flood, 4 * SLOTS)
    await wait_until_full(session, calls, "flood", SLOTS // 2)
    calls.released["drop"].set()
    await wait_until_full(session, calls, "flood", SLOTS - HEADROOM)
    job_id = await look.fetchval("SELECT id FROM jobs WHERE name = 'drop'")
    await JobOperations(store).lifecycle.delete(job_id, tenant=quiet)
    await wait_until_full(session, calls, "flood", SLOTS)


async def test_without_headroom_one_tenant_may_take_every_slot(look: Any, store: Store, start: Any) -> None:
    noisy, quiet = await add_tenant(store, "noisy"), await add_tenant(store, "quiet")
    await add_job(store, look, quiet, "drop")
    await add_ready(look, *await add_job(store, look, noisy, "flood"), 3 * SLOTS)
    calls = Calls("flood")
    await start(calls, concurrency=SLOTS, tenant_headroom=0.0)
    await until(lambda: calls.running["flood"] == SLOTS)


# --- the event loop, which all tenants of a node share ---


class Together:
    """Calls that are answered at the same moment; later ones each wait for one pass of the event loop. `begun` counts
    calls by the pass in which they began."""

    def __init__(self) -> None:
        self.begun: Counter[int] = Counter()
        self.ended = 0
        self.answer = asyncio.Event()
        self._pass = 0

    async def __call__(self, call: Call) -> Outcome:
        self.begun[self._pass] += 1
        await (asyncio.sleep(0) if self.answer.is_set() else self.answer.wait())
        self.ended += 1
        return Succeeded()

    def count_passes(self, runs: int) -> None:
        """Until so many runs have ended."""
        self._pass += 1
        if self.ended < runs:
            asyncio.get_running_loop().call_soon(self.count_passes, runs)


async def test_calls_that_are_answered_at_once_do_not_all_start_the_next_run_at_once(
    look: Any, store: Store, start: Any
) -> None:
    """Between the timer of a tick and its call, the event loop goes around several times: each pass has to be short."""
    runs = 20 * SLOTS
    await add_ready(look, *await add_job(store, look, await add_tenant(store, "noisy"), "flood"), runs)
    calls = Together()
    await start(calls, concurrency=4 * SLOTS)
    await until(lambda: calls.begun[0] == 4 * SLOTS, what="all slots to be taken")
    calls.count_passes(runs)
    calls.answer.set()
    await until(lambda: calls.ended == runs, what="the end of the flood")
    assert max(begun for number, begun in calls.begun.items() if number) <= STARTED_AT_ONCE


async def test_the_ticks_of_a_herd_are_not_read_at_once(
    look: Any, store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While rows are read and enter the wheel, no other tick is fired."""
    fields = {"schedule": "every 50s", "target": HTTP}
    jobs = [msgspec.convert({"name": f"flood-{n}", **fields}, JobSpec) for n in range(MAX_READ * 3 // 2)]
    await JobOperations(store).registration.add(jobs, tenant=await add_tenant(store, "noisy"))
    read: list[list[int]] = []
    window = store.cursors.window

    async def recorded(*arguments: Any) -> list[Cursor]:
        cursors = await window(*arguments)
        read.append([cursor.job for cursor in cursors])
        return cursors

    monkeypatch.setattr(store.cursors, "window", recorded)
    await start()
    await until(lambda: len(set().union(*read)) == len(jobs), what="all cursors")
    assert max(map(len, read)) <= MAX_READ


# --- threads for handlers, of which there may be fewer than slots ---

THREADS = 5


def call_of(function: str, tenant: int, timeout_seconds: float = 60.0) -> Call:
    run = "00000000-0000-8000-8000-000000000000"
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Call(run, "job", run, at, 1, "key", 1, None, PythonTarget(function), timeout_seconds, tenant=tenant)


def run_of(call: Call) -> Any:
    return Run(call, backend=None)  # type: ignore[arg-type]  # never called


async def test_a_tenant_whose_functions_hang_leaves_threads_for_another() -> None:
    """Also threads whose calls have timed out: the functions still hang."""
    app, thread, released = Detent(), HandlerThread(THREADS), threading.Event()
    app.function("hangs")(lambda: released.wait(60))
    app.function("works")(lambda: None)
    thread.start()
    runner = PythonTargetRunner(app.functions, thread, run_of, begin_within=1.0, tenant_headroom=0.2)
    runner.capacity.share_among({1: 1, 2: 1})
    try:
        calls = [asyncio.create_task(runner(call_of("hangs", 1, 0.05))) for _ in range(2 * THREADS)]
        outcomes = await asyncio.gather(*calls)
        refused = [outcome for outcome in outcomes if isinstance(outcome, NotBegun)]
        assert len(refused) == 2 * THREADS - (THREADS - 1)
        assert "share" in refused[0].why
        assert runner.capacity.lacks("python:hangs", 1) and not runner.capacity.lacks("python:works", 2)
        assert await runner(call_of("works", 2)) == Succeeded(None)
        released.set()
        await until(lambda: not runner.capacity.lacks("python:hangs", 1))
    finally:
        released.set()
        await thread.stop()


# --- threads that look up the hosts of HTTP targets ---


async def test_names_of_a_tenant_that_no_name_server_answers_leave_threads_for_another() -> None:
    released = threading.Event()

    def look_up(host: str, _port: int, _family: int) -> Any:
        return released.wait(60) if host == "silent.example" else [host]

    async def resolved(tenant: int, host: str) -> Any:
        calling_tenant.set(tenant)
        return await resolver.resolve(host)

    resolver = TenantResolver(0.2, threads=THREADS, look_up=look_up)
    resolver.gate.share_among({1: 1, 2: 1})
    silent = [asyncio.create_task(resolved(1, "silent.example")) for _ in range(3 * THREADS)]
    try:
        assert await asyncio.create_task(resolved(2, "quiet.example")) == ["quiet.example"]
        assert not any(task.done() for task in silent)
    finally:
        released.set()
        await asyncio.gather(*silent)
        await resolver.close()


class Hosts:
    """Looks names up: those that begin with `silent` have no answer until they are released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.begun: Counter[str] = Counter()

    def __call__(self, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        self.begun[host] += 1
        if host.startswith("silent"):
            self.released.wait(60)
        return [ResolveResult(hostname=host, host="10.0.0.1", port=port, family=family, proto=0, flags=0)]


class Caller(NamedTuple):
    """Sends a request for a tenant; the sentence that says why it was refused."""

    send: Callable[[str, int], Awaitable[str]]
    close: Callable[[], Awaitable[None]]


def by_job(resolver: TenantResolver) -> Caller:
    runner = HttpTargetRunner(FixedPolicy(PUBLIC_ONLY), resolver=resolver)

    async def send(url: str, tenant: int) -> str:
        return failed(await runner(http_call(url, tenant=tenant))).error

    return Caller(send, runner.close)


def by_notice(resolver: TenantResolver) -> Caller:
    messenger = Messenger(FixedPolicy(PUBLIC_ONLY), resolver=resolver)

    async def send(url: str, tenant: int) -> str:
        return (await messenger.send(Message("notice", b"{}"), url, tenant=tenant)).error

    return Caller(send, messenger.close)


@pytest.mark.parametrize("make", [by_job, by_notice])
async def test_a_tenant_whose_look_ups_have_to_wait_makes_no_other_wait_for_the_same_host(make: Any) -> None:
    hosts = Hosts()
    resolver = TenantResolver(0.2, threads=THREADS, look_up=hosts)
    resolver.gate.share_among({1: 1, 2: 1})
    caller = make(resolver)
    calls = [asyncio.create_task(caller.send(f"http://silent-{n}.example/", 1)) for n in range(THREADS - 1)]
    try:
        await until(lambda: hosts.begun.total() == THREADS - 1)
        calls.append(asyncio.create_task(caller.send("http://shared.example/", 1)))
        await until(lambda: resolver.gate._waiting, what="the look-up that has to wait")
        assert "private address" in await caller.send("http://shared.example/", 2)
        assert hosts.begun["shared.example"] == 1 and not any(call.done() for call in calls)
    finally:
        hosts.released.set()
        await asyncio.gather(*calls)
        await caller.close()
        await resolver.close()


async def test_a_call_for_which_no_thread_can_be_started_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    app, thread = Detent(), HandlerThread(THREADS)
    app.function("works")(lambda: None)
    thread.start()
    runner = PythonTargetRunner(app.functions, thread, run_of, tenant_headroom=0.2)
    resolver = TenantResolver(0.2, threads=THREADS, look_up=Hosts())
    for gate in (*runner.capacity.gates, resolver.gate):
        gate.share_among({1: 1, 2: 1})
    try:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", _no_thread)
            for _ in range(2 * THREADS):
                for call in (runner(call_of("works", 1)), resolver.resolve("quiet.example")):
                    with pytest.raises(RuntimeError, match="can't start new thread"):
                        await call
        assert [address["host"] for address in await resolver.resolve("quiet.example")] == ["10.0.0.1"]
        assert await runner(call_of("works", 1)) == Succeeded(None)
    finally:
        await thread.stop()
        await resolver.close()


def _no_thread(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


# --- notices ---


async def test_notices_of_a_tenant_whose_receivers_hang_delay_none_of_another(look: Any, store: Store) -> None:
    for name, notices in (("noisy", 3 * SENT_AT_ONCE), ("quiet", 1)):
        tenant = await add_tenant(store, name)
        job, _ = await add_job(store, look, tenant, name)
        await look.execute(
            "WITH opened AS ("
            "  INSERT INTO incidents (tenant, job, kind, within, tick, misses)"
            "  SELECT $1, $2, 'start', '1s', now(), 1 FROM generate_series(1, $3) RETURNING incident)"
            " INSERT INTO notices (incident, event, due_at) SELECT incident, 'missed', now() FROM opened",
            tenant, job, notices,
        )  # fmt: skip
    taken = Counter(notice.job for notice in await store.expectations.take(SENT_AT_ONCE, TAKEN_FOR))
    assert taken == {"noisy": SENT_AT_ONCE - 1, "quiet": 1}
    again = Counter(notice.job for notice in await store.expectations.take(SENT_AT_ONCE, TAKEN_FOR))
    assert again == {"noisy": SENT_AT_ONCE}
