"""The verdict: what the tables say of every tick, against what should have been and what the target saw.

Expected ticks are counted here, only from the first tick and the period, not by the product's schedule engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from detent.client import JsonClient
from tests.support.sink import Sink
from tests.support.waiting import until


class Watched(NamedTuple):
    """A job that ticks at a fixed period. A tick that fell into the very moment of its pause may be there or not."""

    id: str
    name: str
    first: datetime
    period: timedelta
    pause_sent: datetime | None = None
    paused: datetime | None = None

    def due(self) -> set[datetime]:
        """The ticks that must be accounted for."""
        assert self.pause_sent is not None
        return self._through(self.pause_sent)

    def possible(self) -> set[datetime]:
        assert self.paused is not None
        return self._through(self.paused)

    def _through(self, end: datetime) -> set[datetime]:
        return {self.first + number * self.period for number in range((end - self.first) // self.period + 1)}


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


# Overlapping runs are allowed, so that the runs a dead node holds do not turn later ticks into skipped ones.
ALLOWED = {"concurrent_policy": "ALLOW", "max_concurrent": 50, "max_retries": 5, "retry_base_seconds": 0.1}


def create_ticking(client: JsonClient, name: str, target: dict[str, Any], seconds: int = 1, **fields: Any) -> Watched:
    document = {"name": name, "schedule": {"every": f"{seconds}s"}, "target": target, **ALLOWED, **fields}
    job = client.create_job(document)
    return Watched(job["id"], name, instant(job["next_run_at"]), timedelta(seconds=seconds))


async def create_all_ticking(client: JsonClient, look: Any, targets: Mapping[str, dict[str, Any]]) -> list[Watched]:
    """Jobs that tick every second, in one request: a node that ends or freezes at its nth fire has surely answered it.
    Their first ticks are computed from what is stored, since the node may not answer any more."""
    shared = {"schedule": {"every": "1s"}, **ALLOWED}
    documents = [{"name": name, "target": target, "payload": name, **shared} for name, target in targets.items()]
    made = {item["name"]: item["id"] for item in client.create_jobs(documents)["items"]}
    anchors = dict(await look.fetch("SELECT name, anchor FROM jobs WHERE name = ANY ($1)", list(made)))
    period = timedelta(seconds=1)
    return [Watched(number, name, anchors[name] + period, period) for name, number in made.items()]


def pause_all(client: JsonClient, jobs: Iterable[Watched]) -> list[Watched]:
    return [_pause(client, job) for job in jobs]


def _pause(client: JsonClient, job: Watched) -> Watched:
    sent = datetime.now(UTC)
    client.pause_job(job.id)
    return job._replace(pause_sent=sent, paused=datetime.now(UTC))


async def none_open(look: Any) -> None:
    async def open_runs() -> bool:
        return not await look.fetchval("SELECT count(*) FROM live_runs")

    await until(open_runs, 30, "all runs to end")


async def succeeded_after(look: Any, moment: datetime, jobs: Sequence[Watched]) -> None:
    """Wait until every job has a run that succeeded and whose tick is later than `moment`."""

    async def all_did() -> bool:
        count = await look.fetchval(
            "SELECT count(DISTINCT job) FROM run_history WHERE status = 1 AND scheduled_at > $1", moment
        )
        return int(count) == len(jobs)

    await until(all_did, 30, f"all jobs to succeed after {moment}")


async def database_now(look: Any) -> datetime:
    now: datetime = await look.fetchval("SELECT clock_timestamp()")
    return now


async def rows_of(look: Any, job: Watched) -> list[Any]:
    rows = await look.fetch(
        "SELECT r.*, run_id(r.job, r.scheduled_at, r.serial)::text AS id FROM runs r JOIN jobs j USING (job)"
        " WHERE j.id = $1 AND r.serial = 0 ORDER BY r.scheduled_at",
        job.id,
    )
    return list(rows)


async def attempts_of(look: Any, outcome: str) -> list[Any]:
    rows = await look.fetch(
        "SELECT a.*, run_id(a.job, a.scheduled_at, a.serial)::text AS run_id FROM attempts a WHERE outcome = $1",
        outcome,
    )
    return list(rows)


def accounted(rows: Iterable[Any], period: timedelta) -> list[datetime]:
    """The ticks that rows stand for; a range of missed ones stands for each of its ticks."""
    ticks: list[datetime] = []
    for row in rows:
        count = row["ticks"] or 1
        if row["until"] is not None:
            assert row["scheduled_at"] + (count - 1) * period == row["until"], "a range that does not add up"
        ticks += [row["scheduled_at"] + number * period for number in range(count)]
    return ticks


async def check_ledger(look: Any, jobs: Sequence[Watched], *statuses: str) -> None:
    """Every tick has exactly one row, and all rows have one of these statuses."""
    for job in jobs:
        rows = await rows_of(look, job)
        ticks = accounted(rows, job.period)
        assert len(ticks) == len(set(ticks)), f"{job.name}: a tick has two rows"
        assert sorted(job.due() - set(ticks)) == [], f"{job.name}: ticks without a row"
        assert sorted(set(ticks) - job.possible()) == [], f"{job.name}: rows without a tick"
        # A tick that was due but not yet fired when the pause came is given up by it.
        others = [row for row in rows if row["status"] not in statuses and row["reason"] != "paused"]
        assert others == [], f"{job.name}: runs that are neither {' nor '.join(statuses)}"


async def check_calls(look: Any, sink: Sink, jobs: Sequence[Watched], *, ordered: bool = True) -> None:
    """One key per run and one run per key; tokens rise; the recorded result is the one effect of the key."""
    for key, calls in sink.by_key().items():
        assert len({call.run_id for call in calls}) == 1, f"two runs under the key {key}"
        assert len({call.body for call in calls}) == 1, f"two payloads under the key {key}"
    for run, calls in sink.by_run().items():
        assert len({call.key for call in calls}) == 1, f"two keys of the run {run}"
        tokens = [call.token for call in calls]
        assert len(tokens) == len(set(tokens)), f"a token of the run {run} was used twice"
        if ordered:
            assert tokens == sorted(tokens), f"tokens of the run {run} do not rise"
    await _check_results(look, sink, jobs)


async def _check_results(look: Any, sink: Sink, jobs: Sequence[Watched]) -> None:
    calls = sink.by_run()
    for job in jobs:
        for row in await rows_of(look, job):
            if row["status"] == "succeeded":
                made = calls[row["id"]]
                assert row["token"] == max(call.token for call in made), f"{row['id']}: settled with an old token"
                assert result_text(row["result"]) == sink.effects[made[0].key], f"{row['id']}: another result"


def result_text(result: str) -> str:
    """What the target answered, out of what is kept of it."""
    return str(msgspec.json.decode(result)["body"])
