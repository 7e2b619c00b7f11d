"""An audit reports what it cannot know: an unknown span never counts as clean, and is named with its reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from detent.domain.ledger import Account
from detent.jobs import JobOperations
from detent.jobs.explanation import explain
from detent.store import Store
from tests.store.moving import HOUR, NODE, database_time, job_of_old, number_of, run
from tests.support.factories import add_node

DAY = timedelta(days=1)
UNREADABLE = '{"kind": "lunar", "phase": "full"}'


@pytest.fixture(autouse=True)
async def node(look: Any) -> AsyncIterator[None]:
    await add_node(look, NODE)
    yield
    await look.execute("DELETE FROM schedules")


async def account(verbs: Store, look: Any, name: str) -> Account:
    now = await database_time(look)
    found, _ = await JobOperations(verbs).audit.audit((now - 30 * DAY, now))
    return {each.name: each.account for each in found}[name]


async def number_of_schedule(look: Any) -> int:
    number: int = await look.fetchval("SELECT schedule FROM schedules WHERE stored = $1", UNREADABLE)
    return number


async def test_a_schedule_that_cannot_be_read_is_unknown_and_not_clean(verbs: Store, look: Any) -> None:
    await job_of_old(verbs, look, 5.5 * HOUR, name="silent")
    other = await job_of_old(verbs, look, 5.5 * HOUR, name="other", schedule="30 * * * *")
    await run(verbs, look, other, 2)
    await look.execute(
        "UPDATE schedules SET stored = $1 FROM cursors c JOIN jobs j USING (job)"
        " WHERE schedules.schedule = c.schedule AND j.name = 'silent'",
        UNREADABLE,
    )
    silent = await account(verbs, look, "silent")
    assert not silent.clean
    assert [span.why for span in silent.unknown] == [
        f"Schedule {await number_of_schedule(look)} cannot be read by this version of detent: A stored schedule of the"
        " kind 'lunar' was made by another version of detent."
    ]
    assert (await account(verbs, look, "other")).clean


async def test_a_schedule_whose_row_is_gone_is_unknown(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR, name="silent")
    await look.execute("DELETE FROM schedules")
    silent = await account(verbs, look, "silent")
    assert not silent.clean
    assert "is not in the table of schedules" in silent.unknown[0].why
    assert silent.unknown[0].until is None
    number = await number_of(look, job)
    await look.execute("DELETE FROM cursors WHERE job = $1", number)
    silent = await account(verbs, look, "silent")
    assert not silent.clean
    assert "has no cursor" in silent.unknown[0].why


async def test_a_former_span_that_cannot_be_read_is_unknown_and_what_ran_in_it_is_not_extra(
    verbs: Store, look: Any
) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR, name="edited")
    await run(verbs, look, job, 3)
    await JobOperations(verbs).registration.patch(job.id, {"schedule": "17 * * * *"})
    await look.execute(
        "UPDATE schedules SET stored = $1 FROM segments s WHERE s.schedule = schedules.schedule", UNREADABLE
    )
    edited = await account(verbs, look, "edited")
    assert not edited.clean
    assert (len(edited.unknown), edited.extra_count, edited.missing_count) == (1, 0, 0)
    assert edited.unknown[0].until is not None


async def test_ticks_that_cannot_be_computed_are_unknown_and_their_neighbours_are_audited(
    verbs: Store, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from detent.domain.schedule import Schedule

    await job_of_old(verbs, look, 5.5 * HOUR, name="broken")
    other = await job_of_old(verbs, look, 5.5 * HOUR, name="other", schedule="30 * * * *")
    await run(verbs, look, other, 2)
    count = Schedule.count_between

    def count_between(self: Schedule, after: Any, until: Any) -> int:
        if self.to_stored().get("cron") == "0 * * * *":
            raise OverflowError("date value out of range")
        return count(self, after, until)

    monkeypatch.setattr(Schedule, "count_between", count_between)
    broken = await account(verbs, look, "broken")
    assert not broken.clean
    assert "date value out of range" in broken.unknown[0].why
    assert (await account(verbs, look, "other")).clean


async def test_the_ticks_of_an_unknown_span_are_listed_as_unknown(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR, name="silent")
    (tick,) = await run(verbs, look, job, 1)
    await look.execute("UPDATE schedules SET stored = $1", UNREADABLE)
    now = await database_time(look)
    found = (await JobOperations(verbs).audit.ticks(job.id, now - DAY, now, 50)).ticks
    assert [tick.status for tick in found] == ["unknown", "succeeded"]
    assert found[0].entry is not None
    assert "was made by another version" in (found[0].entry.reason or "")
    assert found[1].at == tick
    story = await JobOperations(verbs).explainer.story(job.id, (tick + HOUR).isoformat())
    told = " ".join(explain(story.facts))
    assert "cannot be read" in told
    assert "had no schedule" not in told


async def test_a_tick_that_is_long_overdue_is_not_clean(verbs: Store, look: Any) -> None:
    await job_of_old(verbs, look, 5.5 * HOUR, name="stuck")
    now = await database_time(look)
    found, _ = await JobOperations(verbs).audit.audit((now - DAY, now), overdue_before=now)
    assert not found[0].account.clean
    assert found[0].account.overdue == found[0].account.open["due"] >= 5
    found, _ = await JobOperations(verbs).audit.audit((now - DAY, now), overdue_before=now - DAY)
    assert found[0].account.clean
