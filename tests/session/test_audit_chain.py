"""What nodes do for the audit log: they chain its events, and record the changes that they make themselves."""

from __future__ import annotations

from typing import Any

from detent.domain.audit_event import NewEvent
from detent.jobs import JobOperations
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.store import Store, original
from detent.store.heartbeat import HeartbeatConnection
from tests.support.factories import add_job
from tests.support.sessions import no_op
from tests.support.waiting import until


async def test_a_scheduling_node_chains_new_events(store: Store, look: Any) -> None:
    for number in range(3):
        await store.audit_log.add(NewEvent("job.pause", 1, "job", name=f"job-{number}"))
    session = Session(store, Settings(), ("scheduler",), {"http": no_op}, [])
    await session.open()
    try:
        await until(
            lambda: look.fetchval("SELECT head >= 3 AND NOT EXISTS (SELECT FROM audit_events WHERE position IS NULL)"
                                  " FROM audit_chain"),
            what="a chain of all events",
        )  # fmt: skip
    finally:
        await session.close(0)


async def test_one_offs_that_a_node_deletes_are_one_event_for_each_tenant(store: Store, look: Any) -> None:
    jobs = [await add_job(look, None) for _ in range(3)]
    await look.execute("UPDATE jobs SET status = 'completed', collect_at = now() WHERE job = ANY ($1)", jobs)
    assert await JobOperations(store).automatic.delete_completed() == 3
    events, _ = await store.audit_log.list(tenant=1)
    assert [(event.action, event.actor.kind, event.after["count"]) for event in events] == [("job.delete", "detent", 3)]


async def test_a_hold_because_of_the_clock_is_recorded_once(store: Store, look: Any, database_url: str) -> None:
    heartbeat = HeartbeatConnection(database_url, "detent", 5.0)
    try:
        for _ in range(2):
            assert not await heartbeat.hold_for_clock(1, "The clock stepped by a day.")
    finally:
        await heartbeat.close()
    events, _ = await store.audit_log.list(tenant=1, cluster=True)
    assert [(event.action, event.actor.kind, event.after) for event in events] == [
        ("cluster.pause", "detent", {"reason": "The clock stepped by a day."})
    ]


async def test_a_copy_that_is_adopted_is_recorded(store: Store, look: Any) -> None:
    await look.execute("UPDATE cluster SET timeline = timeline + 1")
    incarnation = await original.adopt(look)
    assert incarnation is not None
    assert await original.adopt(look) is None
    events, _ = await store.audit_log.list(tenant=1, cluster=True)
    assert [(event.action, event.after) for event in events] == [("database.adopt", {"incarnation": incarnation})]
