"""Ten thousand dead runs are retried at a limited rate, interrupted halfway and started again: none is retried
twice."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from detent.domain.identity import first_token
from tests.cli.command_line import CommandLine
from tests.cli.real_server import RealServer
from tests.support.postgres import run_apart
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

JOBS, DEAD_EACH = 1000, 10
TOKEN = first_token(1) + 8
MAKE = """
INSERT INTO schedules (stored, digest) VALUES ('{"every": "1h"}', 'x') ON CONFLICT DO NOTHING;
INSERT INTO jobs (job, id, name, partition, target, definition) OVERRIDING SYSTEM VALUE
SELECT n, gen_random_uuid(), 'job-' || n, n % 256, 'http', '{"schedule": "every 1h", "target": {"type": "http", "url": "http://x/"}}'
  FROM generate_series(1, $JOBS) AS n;
INSERT INTO cursors (job, next_tick, fire_at, queue, schedule, partition, lanes)
SELECT n, '2100-01-01', '2100-01-01', 1, 1, n % 256, $DEAD FROM generate_series(1, $JOBS) AS n;
INSERT INTO run_history (job, scheduled_at, token, node, finished_at, serial, revision, attempt, status, reason)
SELECT n, now() - m * interval '1 hour', $TOKEN, 7, now() - interval '1 minute', 0, 1, 4, 2, 'retries exhausted'
  FROM generate_series(1, $JOBS) AS n, generate_series(1, $DEAD) AS m;
"""


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as address:
        text = MAKE.replace("$JOBS", str(JOBS)).replace("$DEAD", str(DEAD_EACH)).replace("$TOKEN", str(TOKEN))
        ask(address, text)
        yield address


@pytest.fixture
def detent(url: str, tmp_path: Path) -> Iterator[CommandLine]:
    """Of a server without workers: what was brought back stays where it can be looked at."""
    server = RealServer(tmp_path, url)
    server._arguments[0] = "api"
    server.start()
    yield CommandLine(tmp_path, server.url)
    server.stop()


def ask(url: str, question: str) -> Any:
    async def look() -> Any:
        connection = await asyncpg.connect(url, server_settings={"search_path": "detent"})
        try:
            return await (connection.fetch(question) if question.startswith("SELECT") else connection.execute(question))
        finally:
            await connection.close()

    return run_apart(look())


def brought_back(url: str) -> int:
    return int(ask(url, "SELECT count(*) AS runs FROM live_runs")[0]["runs"])


def measured(url: str, since: str) -> float:
    """Runs per second, by when each was brought back; the first lot marks the beginning."""
    (row,) = ask(
        url,
        "SELECT count(*) FILTER (WHERE not_before > first) / extract(epoch FROM max(not_before) - first) AS rate"
        f" FROM live_runs, (SELECT min(not_before) AS first FROM live_runs WHERE not_before > '{since}') f"
        f" WHERE not_before > '{since}' GROUP BY first",
    )
    return float(row["rate"])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_thousand_dead_runs_are_brought_back_once_each_at_the_rate_that_was_asked_for(
    detent: CommandLine, url: str
) -> None:
    rate = 250
    arguments = ("dlq", "redrive", "--all", "--rate", f"{rate}/s", "--yes")
    first = detent.start(*arguments)
    until_sync(lambda: brought_back(url) >= JOBS * DEAD_EACH / 2, 120, "half of them")
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 130
    half = brought_back(url)
    told = re.search(r"Interrupted after at least ([\d,]+) runs: repeat the command to retry the others", said.decode())
    assert told is not None
    assert int(told[1].replace(",", "")) <= half, "the answer about the last lot may not have been seen"
    rates = [measured(url, "2000-01-01")]
    (row,) = ask(url, "SELECT max(not_before)::text AS latest FROM live_runs")
    second = detent.start(*arguments)
    out, said = second.communicate(timeout=300)
    assert second.returncode == 0, said
    assert len(set(out.decode().split())) == len(out.decode().split()) == JOBS * DEAD_EACH - half
    rates.append(measured(url, row["latest"]))
    (count,) = ask(url, "SELECT count(*) AS runs, count(DISTINCT (job, scheduled_at)) AS ticks FROM live_runs")
    assert (count["runs"], count["ticks"]) == (JOBS * DEAD_EACH, JOBS * DEAD_EACH)
    (tokens,) = ask(url, "SELECT min(token) AS low, max(token) AS high FROM live_runs")
    assert (tokens["low"], tokens["high"]) == (TOKEN + 1, TOKEN + 1), "each was brought back once"
    assert ask(url, "SELECT count(*) AS runs FROM run_history")[0]["runs"] == 0
    print(f"asked for {rate}/s, measured {rates[0]:.1f}/s and {rates[1]:.1f}/s")  # noqa: T201 - the evidence
    assert all(abs(each - rate) <= rate / 10 for each in rates), rates
