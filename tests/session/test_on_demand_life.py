"""What stops on-demand runs, or moves them elsewhere: holds, pauses, cancels, deletions, drains and lost nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from detent.cluster.operations import ClusterOperations
from detent.domain.identity import decode_run_id, node_name
from detent.domain.job import HttpTarget, JobSpec
from detent.jobs import JobOperations
from detent.store import Store
from detent.store.upkeep import RUNS_CHANNEL
from detent.worker import backlog, heads
from tests.session.test_on_demand import Recorder, ended, enqueue
from tests.support import factories
from tests.support.tenants import add_tenant
from tests.support.waiting import until

TTL = 1.0


@pytest.fixture(autouse=True)
def reading_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "READ_EVERY", 0.5)
    monkeypatch.setattr(heads, "READ_SHARE", 1)
    monkeypatch.setattr(backlog, "SWEEP_EVERY", 0.5)


async def idle(session: Any) -> None:
    """The worker has read the heads a few times since."""
    read = session.worker.on_demand.backlog.heads
    for _ in range(3):
        before = read._next_read
        await until(lambda before=before: read._next_read > before, 30)


async def job_id(look: Any, name: str) -> Any:
    return await look.fetchval("SELECT id FROM jobs WHERE name = $1", name)


async def test_no_run_of_a_task_starts_while_the_cluster_is_held(store: Store, look: Any, start: Any) -> None:
    await factories.add_task(look, name="mail")
    await factories.add_task(look, name="sync", key_text="k", key_limit=1)
    await look.execute("UPDATE cluster SET held_at = now(), held_by = 'ann', held_reason = 'a copy'")
    target = Recorder()
    session = await start(target)
    for name in ("mail", "sync"):
        await enqueue(look, name, [{}])
    await idle(session)
    assert target.calls == []
    assert await look.fetchval("SELECT count(*) FROM backlog") == 2
    await look.execute("UPDATE cluster SET held_at = NULL, held_by = NULL, held_reason = NULL")
    await store.upkeep.wake(RUNS_CHANNEL, "hold")
    await ended(look, 2)
    assert sorted(call.job for call in target.calls) == ["mail", "sync"]


async def test_runs_of_a_suspended_tenant_wait_and_those_of_others_start(store: Store, look: Any, start: Any) -> None:
    acme = await add_tenant(store, "acme")
    await factories.add_task(look, name="theirs", tenant=acme)
    await factories.add_task(look, name="ours")
    await store.tenant_lifecycle.suspend("acme", None, "ada")
    target = Recorder()
    session = await start(target)
    await look.fetch("SELECT * FROM enqueue('theirs', tenant => 'acme')")
    await enqueue(look, "ours", [{}])
    await ended(look, 1)
    await idle(session)
    assert [call.job for call in target.calls] == ["ours"]
    await store.tenant_lifecycle.resume("acme")
    await ended(look, 2)
    assert [call.job for call in target.calls] == ["ours", "theirs"]


async def test_a_paused_task_starts_nothing_until_it_is_resumed(store: Store, look: Any, start: Any) -> None:
    operations = JobOperations(store)
    await operations.registration.add([JobSpec(target=HttpTarget(url="http://127.0.0.1:9/"), name="mail")])
    target = Recorder()
    target.gate.clear()
    session = await start(target, concurrency=1)
    await enqueue(look, "mail", [{"payload": {"n": n}} for n in range(50)])
    await until(lambda: target.calls)
    await operations.lifecycle.pause(await job_id(look, "mail"))
    target.gate.set()
    await idle(session)
    started = len(target.calls)
    waiting = await look.fetchval("SELECT count(*) FROM backlog")
    await idle(session)
    assert (len(target.calls), await look.fetchval("SELECT count(*) FROM backlog")) == (started, waiting)
    assert waiting > 0
    await operations.lifecycle.resume(await job_id(look, "mail"))
    await ended(look, 50)
    assert Counter(call.payload["n"] for call in target.calls) == dict.fromkeys(range(50), 1)


async def test_waiting_parked_and_running_runs_are_cancelled_and_the_key_is_free_again(
    store: Store, look: Any, start: Any
) -> None:
    await factories.add_task(look, name="sync", key_text="k", key_limit=1)
    target = Recorder()
    target.gate.clear()
    await start(target)
    runs = await enqueue(look, "sync", [{}, {}, {"delay_seconds": 300}, {}])
    await until(lambda: target.calls)
    await until(lambda: look.fetchval("SELECT count(*) = 2 FROM backlog WHERE parked"))
    keys = {str(row["run"]): decode_run_id(row["run"]) for row in runs}
    running = target.calls[0].run_id
    parked = next(run for run in keys if run != running and run != str(runs[2]["run"]))
    left = next(run for run in keys if run not in (running, parked, str(runs[2]["run"])))
    owners = await store.live_runs.cancel([keys[running], keys[parked], keys[str(runs[2]["run"])]])  # type: ignore[list-item]
    assert sum(owner is not None for owner in owners.values()) == 1
    await store.upkeep.wake(RUNS_CHANNEL, "cancel")
    await until(lambda: len(target.calls) == 2)
    assert target.calls[1].run_id == left
    target.gate.set()
    rows = await ended(look, 4)
    assert Counter(row["status"] for row in rows) == {3: 3, 1: 1}


async def test_runs_of_a_deleted_task_end_as_cancelled(store: Store, look: Any, start: Any) -> None:
    await factories.add_task(look, name="sync", key_text="{{payload.customer}}", key_limit=1)
    target = Recorder()
    target.gate.clear()
    await start(target)
    await enqueue(look, "sync", [{"payload": {"customer": n % 2}} for n in range(20)] + [{"delay_seconds": 99}])
    await until(lambda: len(target.calls) == 2)
    await JobOperations(store).lifecycle.delete(await job_id(look, "sync"))
    target.gate.set()
    while await store.tasks.end_of_deleted_jobs():
        pass
    rows = await ended(look, 21)
    reasons = Counter((row["status"], row["reason"]) for row in rows)
    assert reasons[3, "job deleted"] >= 17
    assert reasons.total() == 21
    assert len(target.calls) <= 4


async def test_a_draining_node_takes_no_on_demand_runs_and_another_takes_them(
    store: Store, look: Any, start: Any
) -> None:
    await factories.add_task(look, name="mail")
    target, other = Recorder(), Recorder()
    target.gate.clear()
    first = await start(target, concurrency=2)
    await enqueue(look, "mail", [{"payload": {"n": n}} for n in range(40)])
    await until(lambda: len(target.calls) == 2)
    await ClusterOperations(store).drain(node_name(first.membership.node), True)
    await store.upkeep.wake(RUNS_CHANNEL, "share")
    await until(lambda: first.draining)
    await start(other)
    await until(lambda: len(other.calls) == 38)
    assert len(target.calls) == 2
    target.gate.set()
    await ended(look, 40)
    payloads = Counter(call.payload["n"] for call in [*target.calls, *other.calls])
    assert payloads == dict.fromkeys(range(40), 1)


async def test_runs_of_a_lost_node_start_once_more_elsewhere_and_keep_their_payload(
    store: Store, look: Any, start: Any
) -> None:
    await factories.add_task(look, name="sync", key_text="{{payload.customer}}", key_limit=1)
    await factories.add_task(look, name="mail")
    target, other = Recorder(), Recorder()
    target.gate.clear()
    first = await start(target, concurrency=5, lease_ttl_seconds=TTL)
    await enqueue(look, "mail", [{"payload": {"n": n}} for n in range(3)])
    await enqueue(look, "sync", [{"payload": {"customer": "a", "n": n}} for n in (3, 4)])
    await until(lambda: len(target.calls) == 4)
    await first.abandon()
    await start(other, lease_ttl_seconds=TTL)
    rows = await ended(look, 5)
    assert [row["status"] for row in rows] == [1] * 5
    assert Counter(call.payload["n"] for call in other.calls) == dict.fromkeys(range(5), 1)
    assert other.most["a"] == 1
    tokens = {call.run_id: call.token for call in target.calls}
    assert all(call.token > tokens.get(call.run_id, 0) for call in other.calls)


async def test_a_lost_reply_of_a_claim_costs_no_run_and_the_payload_is_read(
    store: Store, look: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs are this node's according to the database, and it adopts them."""
    await factories.add_task(look, name="mail")
    target = Recorder()
    session = await start(target)
    await idle(session)
    claims = store.tasks.claim
    lost: list[int] = []

    async def claim(*arguments: Any, **options: Any) -> Any:
        from detent.store.db import OutcomeUnknown

        got = await claims(*arguments, **options)
        if got and not lost:
            lost.append(len(got))
            raise OutcomeUnknown("the reply was lost")
        return got

    monkeypatch.setattr(store.tasks, "claim", claim)
    await enqueue(look, "mail", [{"payload": {"n": n}} for n in range(5)])
    await until(lambda: look.fetchval("SELECT count(*) = 5 FROM run_history"), 60)
    assert lost
    assert Counter(call.payload["n"] for call in target.calls) == dict.fromkeys(range(5), 1)
