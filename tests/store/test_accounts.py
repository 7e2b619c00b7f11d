"""The ledger as it is read from a real PostgreSQL: what is missing is named, ticks are told, and explained."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent.cluster.operations import ClusterOperations
from detent.contract.job import Job
from detent.domain.ledger import Account
from detent.domain.schedule import Schedule
from detent.domain.states import RunStatus
from detent.errors import NotFound, UsageError
from detent.jobs import JobOperations
from detent.jobs.explanation import explain
from detent.store import Store
from tests.store.moving import HOUR, HOURLY, NODE, database_time, fire, full_hour, job_of_old, number_of, run, settle
from tests.support.factories import add_live_run, add_node

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
async def node(look: Any) -> AsyncIterator[None]:
    await add_node(look, NODE)
    yield


async def audited(verbs: Store, look: Any, **options: Any) -> dict[str, Account]:
    now = await database_time(look)
    found, following = await JobOperations(verbs).audit.audit((now - 30 * DAY, now), **options)
    assert following is None
    return {name: account for _, name, account in found}


async def sentences(verbs: Store, job: Job, at: datetime | str) -> str:
    story = await JobOperations(verbs).explainer.story(job.id, at if isinstance(at, str) else at.isoformat())
    told = explain(story.facts)
    assert all(sentence.endswith(".") for sentence in told), told
    return " ".join(told)


# -- audit


async def test_a_row_that_was_deleted_by_hand_is_named_and_nothing_else_is(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 30.5 * HOUR, name="report")
    await job_of_old(verbs, look, 30.5 * HOUR, name="other")
    ticks = await run(verbs, look, job, 20)
    assert (await audited(verbs, look))["report"].clean
    await look.execute("DELETE FROM run_history WHERE scheduled_at = $1", ticks[7])
    accounts = await audited(verbs, look)
    assert (accounts["report"].missing, accounts["report"].missing_count) == ([ticks[7]], 1)
    assert accounts["report"].accounted == {"succeeded": 19}
    assert accounts["other"].clean
    assert set(accounts["other"].open) == {"due"}


async def test_a_run_and_a_range_that_claim_the_same_tick_are_doubled(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR, name="report")
    first, second, third = await run(verbs, look, job, 3)
    await look.execute(
        "UPDATE run_history SET ticks = 2, until = $2, status = 5, token = NULL, attempt = NULL"
        " WHERE scheduled_at = $1",
        first,
        second,
    )
    account = (await audited(verbs, look))["report"]
    assert (account.doubled, account.missing, account.extra_count) == ([second], [], 0)
    assert account.accounted == {"missed": 1, "succeeded": 1}
    assert third not in account.doubled


async def test_a_run_at_an_instant_that_is_no_tick_is_extra(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR, name="report")
    (tick,) = await run(verbs, look, job)
    await look.execute("UPDATE run_history SET scheduled_at = scheduled_at + interval '1 minute'")
    account = (await audited(verbs, look))["report"]
    assert ([entry.first for entry in account.extra], account.missing) == ([tick + timedelta(minutes=1)], [tick])


async def test_ticks_that_are_due_running_or_to_be_caught_up_with_are_open(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR, name="report")
    tick = await fire(verbs, look, job)
    account = (await audited(verbs, look))["report"]
    assert account.clean
    assert (account.open["running"], account.oldest_due) == (1, tick + HOUR)
    assert account.open["due"] == account.expected - 1


async def test_ranges_that_begin_the_day_before_are_found_by_the_hour(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 3 * HOUR, name="dense", schedule="* * * * * *")
    number = await number_of(look, job)
    schedule = Schedule.parse("* * * * * *")
    start = await look.fetchval("SELECT next_tick FROM cursors")
    now = await database_time(look)
    for first in _days(start, now):
        last = schedule.latest(first, min(now, _midnight(first) - timedelta(seconds=1)))
        assert last is not None
        await look.execute(
            "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason, ticks, until)"
            " VALUES ($1, $2, now(), 0, 1, 5, 'grace', $3, $4)",
            number,
            first,
            1 + schedule.count_between(first, last),
            last,
        )
    await look.execute("UPDATE cursors SET next_tick = $1, fire_at = $1, last_tick = $2", now + HOUR, now)
    accounts, _ = await JobOperations(verbs).audit.audit((now - DAY, now), [number])
    assert accounts[0].account.clean, accounts[0].account
    assert accounts[0].account.accounted["missed: grace"] == accounts[0].account.expected > 10_000


def _midnight(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + DAY


def _days(start: datetime, end: datetime) -> list[datetime]:
    found = [start]
    while _midnight(found[-1]) <= end:
        found.append(_midnight(found[-1]))
    return found


async def test_an_audit_goes_page_by_page_over_all_jobs_and_leaves_out_the_long_deleted(
    verbs: Store, look: Any
) -> None:
    jobs = [await job_of_old(verbs, look, 2.5 * HOUR, name=f"job-{n}") for n in range(5)]
    await JobOperations(verbs).lifecycle.delete(jobs[0].id)
    await look.execute("UPDATE jobs SET since = now() - interval '40 days' WHERE status = 'deleted'")
    await JobOperations(verbs).lifecycle.delete(jobs[1].id)
    now = await database_time(look)
    window = (now - DAY, now)
    assert await verbs.ledger.count(window, None) == 4
    names: list[str] = []
    behind: int | None = 0
    while behind is not None:
        page, behind = await JobOperations(verbs).audit.audit(window, behind=behind, limit=2)
        names += [each.name for each in page]
    assert names == ["job-1", "job-2", "job-3", "job-4"]


async def test_lateness_is_that_of_first_attempts(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR, name="report")
    for late in (0.002, 0.03, 4.2):
        await settle(verbs, look, job, await fire(verbs, look, job), late=late)
    account = (await audited(verbs, look))["report"]
    assert (account.late, dict(account.lateness)) == (1, {2: 1, 30: 1, 4200: 1})


# -- ticks


async def test_the_ticks_of_a_job_are_distinguished_from_the_past_to_those_to_come(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 3.5 * HOUR)
    ticks = await run(verbs, look, job, 2)
    hour = await full_hour(look)
    await JobOperations(verbs).lifecycle.skip(job.id, hour + 2 * HOUR)
    found = await JobOperations(verbs).audit.ticks(job.id, hour - DAY, hour + 2 * HOUR, 50)
    told = [(each.at, each.status) for each in found.ticks]
    assert told[:2] == [(tick, "succeeded") for tick in ticks]
    assert told[-2:] == [(hour + HOUR, "scheduled"), (hour + 2 * HOUR, "to be skipped")]
    assert {status for _, status in told[2:-2]} <= {"due"}
    page = await JobOperations(verbs).audit.ticks(job.id, hour - DAY, hour + DAY, 2)
    assert ([each.at for each in page.ticks], page.following) == (ticks, ticks[1])


async def test_a_range_is_reported_as_one_also_across_pages(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR)
    await JobOperations(verbs).lifecycle.pause(job.id)
    found = await JobOperations(verbs).audit.ticks(job.id, await full_hour(look) - DAY, await database_time(look), 1)
    (skipped,) = found.ticks
    assert (skipped.status, skipped.entry.reason) == ("skipped", "paused")
    if found.following is not None:  # midnight cut the range in two
        rest = await JobOperations(verbs).audit.ticks(job.id, found.following, await database_time(look), 50)
        assert skipped.ticks + sum(each.ticks for each in rest.ticks) in (5, 6)
    else:
        assert skipped.ticks in (5, 6)


async def test_ticks_of_a_job_that_ticks_once_a_year_are_found(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, HOUR, schedule="0 0 1 1 *")
    now = await database_time(look)
    found = await JobOperations(verbs).audit.ticks(job.id, now, now + timedelta(days=366 * 10), 50)
    assert (len(found.ticks), {each.status for each in found.ticks}) == (10, {"scheduled"})


# -- explanations


async def test_a_normal_tick_is_explained_with_its_rule_its_leader_and_its_attempt(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR, name="report", timezone="Europe/Berlin")
    (tick,) = await run(verbs, look, job)
    await look.execute(
        "INSERT INTO elections (partition, term, node, nomination, at) SELECT partition, 4194307, 7, 0, $1 FROM jobs",
        tick - HOUR,
    )
    told = await sentences(verbs, job, tick)
    assert "is a tick of 'report'. Its schedule was: " in told
    assert "in Europe/Berlin, set by revision 1 at " in told
    assert "by maker." in told
    assert f"was node 0000000000000007, since {tick - HOUR:%Y-%m-%d %H:%M:%S} UTC" in told
    assert "with term 1.3." in told
    assert "which succeeded" in told
    assert "Attempt 1 started 4 ms after the tick on node 0000000000000007 and succeeded after 1.0 s." in told


async def test_a_dead_run_is_explained_with_every_attempt(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR)
    tick = await fire(verbs, look, job)
    await settle(verbs, look, job, tick, RunStatus.DEAD)
    told = await sentences(verbs, job, tick)
    assert "died at" in told
    assert "because its retries were used up" in told
    assert "Attempt 1 started 4 ms after the tick on node 0000000000000007 and failed after 1.0 s: it broke." in told


async def test_a_skipped_overlap_names_the_run_in_its_way(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR)
    first = await fire(verbs, look, job)
    second = await fire(verbs, look, job)
    told = await sentences(verbs, job, second)
    run_id = (await JobOperations(verbs).explainer.story(job.id, first.isoformat())).run_id
    assert (
        f"It did not run: the run of {first:%Y-%m-%d %H:%M:%S} UTC, {run_id}, was unfinished (has not ended yet)"
        in told
    )


async def test_a_run_that_began_later_was_not_in_the_way(verbs: Store, look: Any) -> None:
    """It is of an older tick, but was made after the skip: to make up for that tick, or to repeat it."""
    job = await job_of_old(verbs, look, 8.5 * HOUR)
    older, first = await run(verbs, look, job), await fire(verbs, look, job)
    skipped = await fire(verbs, look, job)
    told = f"the run of {first:%Y-%m-%d %H:%M:%S} UTC"
    await look.execute("UPDATE run_history SET finished_at = now() WHERE status = 4")
    again = "INSERT INTO live_runs (job, scheduled_at, token, not_before, serial, queue, revision, lane, priority)"
    await look.execute(
        f"{again} SELECT job, $1, 9, now() + interval '1 h', 1, queue, 1, 1, 5 FROM cursors", first + HOUR / 2
    )
    assert told in await sentences(verbs, job, skipped), "and not the one that was made later"
    await settle(verbs, look, job, first)
    await look.execute(
        "UPDATE run_history SET finished_at = now() + interval '1 h', started_at = now() + interval '1 h'"
    )
    await look.execute("UPDATE run_history SET finished_at = now() WHERE status = 4")
    assert "another run of the job was unfinished" in await sentences(verbs, job, skipped), "which one is not known"
    await look.execute("UPDATE run_history SET started_at = now() - interval '1 s' WHERE scheduled_at = $1", *older)
    assert f"the run of {older[0]:%Y-%m-%d %H:%M:%S} UTC" in await sentences(verbs, job, skipped)


async def test_a_tick_that_jitter_puts_off_is_yet_to_come(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 13 * HOUR, schedule="every 12h", jitter_seconds=43_000)
    number = await number_of(look, job)
    now = await database_time(look)
    for seconds in range(1, 60):
        tick = now.replace(microsecond=0) - timedelta(seconds=seconds)
        schedule = Schedule.parse("every 12h", anchor=tick, jitter_seconds=43_000)
        if schedule.jitter(number, tick) > HOUR:
            break
    await look.execute("UPDATE jobs SET created_at = $1, anchor = $1", tick - 12 * HOUR)
    await look.execute("UPDATE cursors SET next_tick = $1, fire_at = $2", tick, tick + schedule.jitter(number, tick))
    told = await sentences(verbs, job, tick)
    assert "It fires in " in told
    assert "after the tick because of jitter." in told
    assert [each.status for each in (await JobOperations(verbs).audit.ticks(job.id, tick - HOUR, now, 5)).ticks] == [
        "scheduled"
    ]


async def test_jitter_is_not_lateness(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR, jitter_seconds=3000)
    number = await number_of(look, job)
    schedule = Schedule.parse(HOURLY, jitter_seconds=3000)
    tick = await fire(verbs, look, job)
    delay = schedule.jitter(number, tick)
    assert delay > timedelta(seconds=1)
    await settle(verbs, look, job, tick, late=delay.total_seconds() + 0.02)
    ((_, _, account),), _ = await JobOperations(verbs).audit.audit((tick - HOUR, tick + HOUR / 2), [number])
    assert (account.late, dict(account.lateness)) == (0, {20: 1})


@pytest.mark.parametrize(("paused", "words"), [(True, "the job was paused at "), (False, "no node fired it in time")])
async def test_what_was_to_be_caught_up_with_and_was_given_up_is_explained(
    verbs: Store, look: Any, paused: bool, words: str
) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR)
    (tick,) = await run(verbs, look, job)
    await look.execute(
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        " SELECT job, partition, 'missed', schedule, $1, $1, $1, 1 FROM cursors",
        tick + HOUR,
    )
    if paused:
        await look.execute("UPDATE jobs SET since = $1, opened = 'paused', opened_by = 'ada'", tick + HOUR / 2)
    assert await JobOperations(verbs).backfills.drop(job.id) == 1
    told = await sentences(verbs, job, tick + HOUR)
    assert f"It was missed: {words}" in told
    assert "It waited to be caught up until the catch-up was dropped, " in told
    assert ("no node fired it" in told) is not paused


async def test_a_pause_is_explained_with_who_and_why(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR)
    (tick,) = await run(verbs, look, job)
    await JobOperations(verbs).lifecycle.pause(job.id, "too loud", by="ada", until=await database_time(look) + 9 * HOUR)
    assert "It did not run: the job was paused at " in await sentences(verbs, job, tick + HOUR)
    assert "by ada (too loud)" in await sentences(verbs, job, tick + HOUR)
    open_pause = await sentences(verbs, job, await full_hour(look) + 3 * HOUR)
    assert "It does not run: the job was paused at " in open_pause
    assert "by ada (too loud), until" in open_pause


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("grace", "it was older than the job's grace period"),
        ("policy", "(missed_window SKIP)"),
        ("limit", "more ticks had been missed than max_missed allows"),
    ],
)
async def test_a_missed_tick_is_explained(verbs: Store, look: Any, reason: str, words: str) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR)
    (tick,) = await run(verbs, look, job)
    await look.execute(
        "UPDATE run_history SET status = 5, reason = $1, ticks = 3, until = $2, token = NULL, attempt = NULL",
        reason,
        tick + 2 * HOUR,
    )
    told = await sentences(verbs, job, tick + HOUR)
    assert words in told
    assert "The ledger has one entry for 3 ticks, from " in told


async def test_a_merged_tick_names_the_tick_that_ran(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR)
    first, second = await run(verbs, look, job, 2)
    await look.execute(
        "UPDATE run_history SET status = 5, reason = 'merged', token = NULL, attempt = NULL WHERE scheduled_at = $1",
        first,
    )
    told = await sentences(verbs, job, first)
    assert f"only the latest missed tick, {second:%Y-%m-%d %H:%M:%S} UTC, was run" in told


async def test_edits_deletions_and_skips_are_explained(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR)
    (tick,) = await run(verbs, look, job)
    coming = await full_hour(look) + 3 * HOUR
    await JobOperations(verbs).lifecycle.skip(job.id, coming, "holiday", by="ada")
    assert "It will not run: it was marked to be skipped" in await sentences(verbs, job, coming)
    assert "by ada (holiday)." in await sentences(verbs, job, coming)
    assert "It fires in " in await sentences(verbs, job, coming - HOUR)
    await JobOperations(verbs).registration.patch(job.id, {"schedule": "30 * * * *"}, by="bob")
    edited = await sentences(verbs, job, tick + HOUR)
    assert "when the schedule was changed" in edited
    assert "by bob. An edit does not fire ticks." in edited
    await JobOperations(verbs).lifecycle.delete(job.id, by="cora")
    gone = await sentences(verbs, job, coming + HOUR)
    assert gone.startswith(f"{job.name!r} had no schedule at ")
    assert "it was deleted" in gone
    assert "by cora." in gone


async def test_an_instant_that_is_no_tick_names_those_on_both_sides(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR)
    hour = await full_hour(look)
    told = await sentences(verbs, job, hour - HOUR / 2)
    assert "is not a tick of" in told
    assert f"The nearest ticks are {hour - HOUR:%Y-%m-%d %H:%M:%S} UTC and {hour:%Y-%m-%d %H:%M:%S} UTC." in told


async def test_before_a_job_was_made_nothing_was_expected(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 5.5 * HOUR)
    told = await sentences(verbs, job, await full_hour(look) - 9 * HOUR)
    assert "it was created" in told
    assert "by maker." in told
    assert "Its first tick after that time is" in told


async def test_a_tick_that_is_due_is_explained_and_so_is_a_cluster_that_is_paused(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 1.5 * HOUR)
    tick = await look.fetchval("SELECT next_tick FROM cursors")
    await ClusterOperations(verbs).pause_ticks("ada", "moving house")
    told = await sentences(verbs, job, tick)
    assert "and has not fired yet." in told
    assert "No tick of any job fires at the moment: the cluster was paused" in told
    assert "by ada (moving house)." in told


async def test_a_wall_time_that_does_not_exist_is_explained(verbs: Store, look: Any) -> None:
    fields = {"schedule": "30 2 * * *", "timezone": "Europe/Berlin"}
    age = await database_time(look) - datetime(2026, 3, 1, tzinfo=UTC)
    moved = await job_of_old(verbs, look, age, **fields)
    told = await sentences(verbs, moved, "2026-03-29T02:30:00")
    assert told.startswith("2026-03-29 01:00:00 UTC (03:00:00 in Europe/Berlin) is a tick of")
    assert "The clocks change then: 02:30 does not exist on 2026-03-29: runs at 03:00." in told
    dropped = await job_of_old(verbs, look, age, **fields, dst_gap="skip")
    told = await sentences(verbs, dropped, "2026-03-29T02:30:00")
    assert "is not a tick of" in told
    assert "02:30 does not exist on 2026-03-29: does not run." in told


async def test_what_cannot_be_read_or_found_is_refused(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, HOUR)
    with pytest.raises(UsageError, match="is not an ISO 8601 date"):
        await JobOperations(verbs).explainer.story(job.id, "yesterday")
    from uuid import uuid4

    with pytest.raises(NotFound):
        await JobOperations(verbs).explainer.story(uuid4(), "2026-01-01T00:00:00Z")


async def test_a_run_that_waits_and_one_that_runs_are_explained(verbs: Store, look: Any) -> None:
    job = await job_of_old(verbs, look, 3.5 * HOUR, concurrent_policy="ALLOW")
    tick = await fire(verbs, look, job)
    assert "which is running on node 0000000000000007" in await sentences(verbs, job, tick)
    await add_live_run(look, await number_of(look, job), tick + HOUR, lane=1)
    assert "which waits for a worker." in await sentences(verbs, job, tick + HOUR)
