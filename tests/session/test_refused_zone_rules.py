"""tzdata_policy refuse: no node fires by other rules of the zone than the job was computed by, and all say so."""

from __future__ import annotations

from typing import Any

import pytest

from detent.domain.job import HttpTarget, JobSpec
from detent.domain.schedule import tzdata_version
from detent.domain.schedule.zones import has_rules, zone_rules
from detent.errors import Conflict
from detent.jobs import JobOperations
from detent.jobs.explain import TickExplainer
from detent.jobs.explanation import explain
from detent.scheduler import scheduler as sweeping
from detent.scheduler import set_aside
from detent.store import Store
from tests.support.waiting import until

HTTP = HttpTarget(url="http://127.0.0.1:9/")
OTHER = "2020a:0000000000000000"


def spec(**fields: Any) -> JobSpec:
    defaults = {"schedule": "0 3 1 1 *", "target": HTTP, "name": "close", "timezone": "Europe/Berlin"}
    return JobSpec(**{**defaults, "tzdata_policy": "refuse", **fields})


async def pin(look: Any, rules: str) -> None:
    """As if a node with other zone data had registered the jobs."""
    await look.execute(
        "UPDATE schedules SET stored = jsonb_set(stored, '{zone_rules}', to_jsonb($1::text))"
        " WHERE stored ? 'zone_rules'",
        rules,
    )


async def due_now(look: Any) -> Any:
    return await look.fetchval(
        "UPDATE cursors SET next_tick = t, fire_at = t, generation = generation + 1"
        " FROM (SELECT date_trunc('milliseconds', now()) AS t) AS now RETURNING t"
    )


async def test_a_job_is_set_aside_by_a_node_with_other_rules_and_fires_once_they_are_accepted(
    look: Any, store: Store, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "SWEEP_EVERY", 0.3)
    monkeypatch.setattr(set_aside, "FIRST_WAIT", 0.2)
    jobs = JobOperations(store)
    (job,) = await jobs.registration.add([spec()])
    await pin(look, OTHER)
    await due_now(look)
    await start()
    why = await until(lambda: look.fetchval("SELECT why FROM set_aside_jobs"), what="it is on record")
    assert "computed by zone data 2020a" in why and "other rules for Europe/Berlin" in why
    assert why.endswith("or install the release by which it was computed.")
    assert await look.fetchval("SELECT count(*) FROM live_runs") == 0
    with pytest.raises(Conflict, match="refuses the rules that the zone data of this node has for Europe/Berlin"):
        await jobs.registration.patch(job.id, {"priority": 7})
    assert (await jobs.registration.upsert(spec()))[1] == "unchanged"
    await jobs.registration.patch(job.id, {"tzdata_policy": None})
    assert await look.fetchval("SELECT count(*) FROM set_aside_jobs") == 0
    await due_now(look)
    await until(lambda: look.fetchval("SELECT count(*) FROM run_history WHERE status = 1"), what="its run")


async def test_the_explanation_of_its_next_tick_is_why_that_is_not_known(look: Any, store: Store) -> None:
    (job,) = await JobOperations(store).registration.add([spec()])
    await pin(look, OTHER)
    (sentence,) = explain((await TickExplainer(store).story(job.id, "next")).facts)
    assert sentence.startswith("The schedule of 'close' at ")
    assert "is unknown. Its ticks were computed by zone data 2020a" in sentence


async def test_another_release_with_the_same_rules_changes_nothing(look: Any, store: Store, start: Any) -> None:
    (job,) = await JobOperations(store).registration.add([spec()])
    await pin(look, f"1999z:{zone_rules('Europe/Berlin').partition(':')[2]}")
    await JobOperations(store).registration.patch(job.id, {"priority": 7})
    await due_now(look)
    await start()
    await until(lambda: look.fetchval("SELECT count(*) FROM run_history WHERE status = 1"), what="its run")


async def test_new_zone_data_moves_others_and_leaves_a_job_that_refuses_alone(look: Any, store: Store) -> None:
    jobs = JobOperations(store)
    await jobs.registration.add([spec(), spec(name="other", tzdata_policy="recompute")])
    await pin(look, OTHER)
    await look.execute("UPDATE jobs SET tzdata = '2020a'")
    await look.execute(
        "UPDATE cursors SET next_tick = next_tick + interval '1 hour', fire_at = fire_at + interval '1 hour'"
    )
    await look.execute("UPDATE cluster SET tzdata = NULL")
    assert await jobs.zone_data.renew(tzdata_version()) == 1
    rows = await look.fetch("SELECT name, tzdata, opened FROM jobs ORDER BY name")
    assert [tuple(row) for row in rows] == [("close", "2020a", None), ("other", tzdata_version(), "zone data")]


async def test_a_schedule_without_a_zone_has_nothing_to_refuse(look: Any, store: Store) -> None:
    await JobOperations(store).registration.add(
        [
            spec(timezone="UTC"),
            spec(name="every", schedule="every 1h"),
            spec(name="at", schedule="2030-01-01T00:00:00Z"),
        ]
    )
    assert await look.fetchval("SELECT count(*) FROM schedules WHERE stored ? 'zone_rules'") == 0


def test_the_rules_of_a_zone_are_those_of_its_offsets() -> None:
    assert has_rules("Europe/Berlin", zone_rules("Europe/Paris"))
    assert not has_rules("Europe/Berlin", zone_rules("America/New_York"))
    assert not has_rules("Africa/Casablanca", zone_rules("Africa/Algiers"))
