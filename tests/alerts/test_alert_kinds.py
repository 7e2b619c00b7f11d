"""Every kind of event from the tables to a message, and how each is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest

from detent.contract.alert_rule import AlertRule
from detent.domain.alert_rule import QuietHours
from detent.jobs import JobOperations
from detent.jobs.alert_rules import AlertRuleCommands
from detent.jobs.automatic import ITSELF
from tests.alerts.desk import AlertDesk
from tests.observability.receiver import Receiver

Step = Callable[[AlertDesk, int], Awaitable[Any]]


class Trouble(NamedTuple):
    """How an event of a kind happens to a job, and how it is over."""

    begin: Step
    end: Step
    message: str
    severity: str


async def misses_a_deadline(desk: AlertDesk, job: int) -> None:
    await desk.sql.execute(
        "INSERT INTO incidents (tenant, job, kind, within, tick, misses) VALUES (1, $1, 'finish', '1m', now(), 1)", job
    )


async def meets_its_deadline(desk: AlertDesk, job: int) -> None:
    await desk.sql.execute("UPDATE incidents SET closed_at = now(), closed = 'recovered' WHERE job = $1", job)


async def is_paused_by_detent(desk: AlertDesk, job: int) -> None:
    number = await desk.sql.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    await JobOperations(desk.store).lifecycle.pause(number, "the target answered 410 Gone", tenant=1, by=ITSELF)


async def is_resumed(desk: AlertDesk, job: int) -> None:
    number = await desk.sql.fetchval("SELECT id FROM jobs WHERE job = $1", job)
    await JobOperations(desk.store).lifecycle.resume(number, tenant=1, by="ada")


async def is_set_aside(desk: AlertDesk, job: int) -> None:
    await desk.sql.execute(
        "INSERT INTO set_aside (job, kind, tick, generation, why, node)"
        " SELECT job, 'tick', next_tick, generation, 'it cannot be read', 1 FROM cursors WHERE job = $1",
        job,
    )


async def fires_again(desk: AlertDesk, job: int) -> None:
    await desk.sql.execute("UPDATE cursors SET generation = generation + 1 WHERE job = $1", job)


async def has_to_catch_up(desk: AlertDesk, job: int) -> None:
    await desk.sql.execute(
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        " VALUES ($1, 0, 'missed', 1, now() - interval '1d', now(), now() - interval '1d', 1234)",
        job,
    )


async def has_caught_up(desk: AlertDesk, job: int) -> None:
    await desk.sql.execute("DELETE FROM catchups WHERE job = $1", job)


async def dies_three_times(desk: AlertDesk, job: int) -> None:
    await desk.dies(job)
    await desk.passed()
    await desk.dies(job, 2)


async def dead_run_is_discarded(desk: AlertDesk, job: int) -> None:
    await desk.sql.execute("UPDATE run_history SET reason = 'discarded' WHERE job = $1", job)


TROUBLES = {
    "dead": Trouble(AlertDesk.dies, dead_run_is_discarded, "1 dead run of the job a.", "error"),
    "deadline": Trouble(misses_a_deadline, meets_its_deadline, "1 missed deadline of the job a.", "error"),
    "paused": Trouble(is_paused_by_detent, is_resumed, "Automatic pause of the job a.", "error"),
    "set_aside": Trouble(is_set_aside, fires_again, "Ticks that cannot be fired of the job a.", "critical"),
    "catch_up": Trouble(has_to_catch_up, has_caught_up, "1,234 missed ticks of the job a to catch up.", "warning"),
    "failures": Trouble(dies_three_times, AlertDesk.succeeds, "Only dead runs lately of the job a.", "error"),
}


@pytest.mark.parametrize("kind", TROUBLES)
async def test_an_event_is_reported_once_and_its_end_once(desk: AlertDesk, receiver: Receiver, kind: str) -> None:
    trouble = TROUBLES[kind]
    await desk.rule(events=[kind], receiver={"type": "webhook", "url": receiver.url})
    others = [name for name in TROUBLES if name != kind]
    await desk.rule("others", events=others, receiver={"type": "webhook", "url": receiver.url}, jobs=["b"])
    job = await desk.job("a")
    await trouble.begin(desk, job)
    for _ in range(3):
        await desk.passed()
    assert [message.document["data"]["message"] for message in receiver.messages] == [trouble.message]
    assert receiver.messages[0].document["data"]["severity"] == trouble.severity
    await trouble.end(desk, job)
    for _ in range(4):
        await desk.passed()
    assert receiver.events() == ["opened", "recovered"]


async def test_a_pause_by_a_person_is_no_event(desk: AlertDesk, receiver: Receiver) -> None:
    await desk.rule(events=["paused"], receiver={"type": "webhook", "url": receiver.url})
    number = await desk.sql.fetchval("SELECT id FROM jobs WHERE job = $1", await desk.job("a"))
    await JobOperations(desk.store).lifecycle.pause(number, "moving", tenant=1, by="ada")
    await desk.passed()
    assert receiver.messages == [] and await desk.sql.fetchval("SELECT count(*) FROM alerts") == 0


async def test_a_deleted_job_is_over_it(desk: AlertDesk, receiver: Receiver) -> None:
    await desk.rule(receiver={"type": "webhook", "url": receiver.url})
    job = await desk.job("a")
    await desk.dies(job)
    await desk.passed()
    await desk.sql.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", job)
    for _ in range(2):
        await desk.passed()
    assert receiver.events() == ["opened", "recovered"]


async def test_without_a_rule_for_it_no_event_is_noted_and_old_ones_are_dropped(desk: AlertDesk) -> None:
    job = await desk.job("a")
    await desk.dies(job)
    assert await desk.sql.fetchval("SELECT count(*) FROM alert_events") == 0
    await desk.rule(receiver={"type": "slack", "url": "http://127.0.0.1:9/"})
    await desk.dies(job)
    assert await desk.sql.fetchval("SELECT count(*) FROM alert_events") == 1
    await desk.store.alert_rules.delete("ops", tenant=1)
    await desk.look()
    assert await desk.sql.fetchval("SELECT count(*) FROM alert_events") == 0


async def test_an_event_of_a_transaction_that_rolls_back_is_none(desk: AlertDesk) -> None:
    await desk.rule(receiver={"type": "slack", "url": "http://127.0.0.1:9/"})
    job = await desk.job("a")
    transaction = desk.sql.transaction()
    await transaction.start()
    await desk.dies(job, 3)
    await transaction.rollback()
    assert await desk.sql.fetchval("SELECT count(*) FROM alert_events") == 0


async def test_what_happens_in_quiet_hours_is_one_summary_afterwards(desk: AlertDesk, receiver: Receiver) -> None:
    now = await desk.sql.fetchval("SELECT now()")
    hours = {"start": f"{now - timedelta(hours=1):%H:%M}", "end": f"{now + timedelta(hours=1):%H:%M}"}
    await desk.rule(receiver={"type": "webhook", "url": receiver.url}, quiet_hours=hours)
    jobs = [await desk.job(name) for name in ("a", "b")]
    for job in jobs:
        await desk.dies(job, 2)
        await desk.passed()
        await desk.succeeds(job)
        await desk.passed()
    assert receiver.messages == []
    critical = await desk.job("c", ("severity:critical",))
    await desk.rule("calls", receiver={"type": "webhook", "url": receiver.url}, quiet_hours=hours, jobs=["c"])
    await desk.dies(critical)
    await desk.passed()
    # The job that is critical makes the common alert critical as well: both rules report it at once.
    assert len(receiver.messages) == 2
    summary = next(one.document["data"] for one in receiver.messages if one.document["data"]["rule"] == "ops")
    assert summary["counts"] == [{"event": "dead", "count": 5, "jobs": 3}]


async def test_quiet_hours_that_end_let_one_message_go(desk: AlertDesk, receiver: Receiver) -> None:
    now = await desk.sql.fetchval("SELECT now()")
    hours = {"start": f"{now - timedelta(hours=1):%H:%M}", "end": f"{now + timedelta(hours=1):%H:%M}"}
    await desk.rule(receiver={"type": "webhook", "url": receiver.url}, quiet_hours=hours)
    for name in ("a", "b", "c"):
        job = await desk.job(name)
        await desk.dies(job, 2)
        await desk.passed()
        await desk.succeeds(job)
        await desk.passed()
    assert receiver.messages == [] and await desk.sql.fetchval("SELECT count(*) FROM alerts") == 1
    over = {"start": f"{now + timedelta(hours=3):%H:%M}", "end": f"{now + timedelta(hours=4):%H:%M}"}
    await desk.sql.execute(
        "UPDATE alert_rules SET definition = jsonb_set(definition, '{quiet_hours}', $1::jsonb)",
        f'{{"start": "{over["start"]}", "end": "{over["end"]}"}}',
    )
    await desk.let_pass(timedelta(hours=2))
    for _ in range(3):
        await desk.passed()
    assert receiver.events() == ["passed"]
    assert (
        receiver.messages[0].document["data"]["message"].startswith("Over again: 6 dead runs of 3 jobs (a, b, c) since")
    )


def hours_around(now: datetime, end: int = 3) -> dict[str, str]:
    """Quiet hours of which an hour has passed, and so many are left."""
    return {"start": f"{now - timedelta(hours=1):%H:%M}", "end": f"{now + timedelta(hours=end):%H:%M}"}


async def change_quiet_hours(desk: AlertDesk, hours: dict[str, str] | None) -> AlertRule:
    made = None if hours is None else QuietHours(hours["start"], hours["end"])
    return await AlertRuleCommands(desk.store).edit("ops", {"quiet_hours": made}, tenant=1, by="a test")


async def test_messages_that_quiet_hours_hold_are_sent_when_these_are_removed(
    desk: AlertDesk, receiver: Receiver
) -> None:
    now = await desk.sql.fetchval("SELECT now()")
    rule = await desk.rule(receiver={"type": "webhook", "url": receiver.url}, quiet_hours=hours_around(now))
    assert rule.held_until is None
    await desk.dies(await desk.job("a"), 2)
    await desk.passed()
    held = (await AlertRuleCommands(desk.store).get("ops", tenant=1)).held_until
    assert held is not None and f"{held:%H:%M}" == hours_around(now)["end"]
    shorter = await change_quiet_hours(desk, hours_around(now, end=2))
    await desk.passed()
    assert receiver.messages == [] and shorter.held_until is None
    held = (await AlertRuleCommands(desk.store).get("ops", tenant=1)).held_until
    assert held is not None and f"{held:%H:%M}" == hours_around(now, end=2)["end"]
    assert (await change_quiet_hours(desk, None)).held_until is None
    await desk.passed()
    assert receiver.events() == ["opened"]


async def test_what_was_over_again_in_quiet_hours_is_reported_when_these_are_removed(
    desk: AlertDesk, receiver: Receiver
) -> None:
    now = await desk.sql.fetchval("SELECT now()")
    await desk.rule(receiver={"type": "webhook", "url": receiver.url}, quiet_hours=hours_around(now))
    job = await desk.job("a")
    await desk.dies(job)
    await desk.passed()
    await desk.succeeds(job)
    for _ in range(2):
        await desk.passed()
    await change_quiet_hours(desk, None)
    await desk.passed()
    assert receiver.events() == ["passed"]


async def test_a_change_of_quiet_hours_keeps_the_time_in_which_events_are_grouped(
    desk: AlertDesk, receiver: Receiver
) -> None:
    now = await desk.sql.fetchval("SELECT now()")
    hours = hours_around(now)
    await desk.rule(receiver={"type": "webhook", "url": receiver.url}, quiet_hours=hours, group_seconds=600)
    await desk.dies(await desk.job("a"))
    await desk.passed()
    due = await desk.sql.fetchval("SELECT flush_at FROM alerts")
    await desk.sql.execute("UPDATE alerts SET flush_at = flush_at + interval '2 hours'")
    await change_quiet_hours(desk, None)
    await desk.passed()
    assert await desk.sql.fetchval("SELECT flush_at FROM alerts") == due
    assert receiver.messages == []


async def test_a_rule_by_job_opens_and_closes_an_alert_for_each(desk: AlertDesk, receiver: Receiver) -> None:
    await desk.rule(receiver={"type": "webhook", "url": receiver.url}, group_by="job")
    first, second = await desk.job("a"), await desk.job("b")
    await desk.dies(first)
    await desk.dies(second)
    await desk.passed()
    await desk.succeeds(first)
    for _ in range(2):
        await desk.passed()
    keys = [message.document["data"]["key"] for message in receiver.messages]
    assert receiver.events() == ["opened", "opened", "recovered"]
    assert len(set(keys)) == 2 and keys[2] in keys[:2]


async def test_nodes_that_add_events_at_the_same_time_open_one_alert_and_count_each_once(desk: AlertDesk) -> None:
    await desk.rule(receiver={"type": "slack", "url": "http://127.0.0.1:9/"})
    jobs = [await desk.job(f"job-{number}") for number in range(20)]
    for job in jobs:
        await desk.dies(job, 3)
    await asyncio.gather(*(desk.store.alerts.add_events(4) for _ in range(5)))
    (alert,) = await desk.sql.fetch("SELECT events FROM alerts")
    assert alert["events"] == await desk.sql.fetchval("SELECT sum(events) FROM alert_jobs") == 60


async def test_a_job_that_dies_again_before_the_alert_is_over_keeps_it_open(
    desk: AlertDesk, receiver: Receiver
) -> None:
    await desk.rule(receiver={"type": "webhook", "url": receiver.url}, group_seconds=60)
    job = await desk.job("a")
    await desk.dies(job)
    await desk.look()
    await desk.let_pass(timedelta(minutes=1))
    await desk.passed()
    await desk.succeeds(job)
    await desk.passed()
    await desk.dies(job)
    for _ in range(2):
        await desk.passed()
        await desk.let_pass(timedelta(minutes=5))
    await desk.passed()
    assert receiver.events() == ["opened", "continued"]
    assert await desk.sql.fetchval("SELECT count(*) FROM alerts WHERE closed_at IS NULL") == 1
