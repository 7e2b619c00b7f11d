"""What nodes do for the audit log by themselves: they chain it, and record their own changes."""

from __future__ import annotations

from typing import Any

from detent.domain.audit_event import NewEvent
from detent.jobs import JobOperations
from detent.node.session import Session
from detent.settings.settings import Settings
from detent.store import Store
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
