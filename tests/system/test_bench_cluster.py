"""`detent bench failover` and `idle` on real processes, and how an idle node's statements are counted."""

from __future__ import annotations

import pytest

from detent.devtools.bench import failover, idle
from detent.store import sql

LOG = """\
2026-03-01 06:30:00.001 UTC [10] LOG:  execute __asyncpg_stmt_1__: {beat}
2026-03-01 06:30:00.001 UTC [10] DETAIL:  Parameters: $1 = '1'
2026-03-01 06:30:00.002 UTC [11] LOG:  statement: BEGIN;
2026-03-01 06:30:00.003 UTC [11] LOG:  execute <unnamed>: SELECT 1
\tFROM nowhere
2026-03-01 06:30:00.004 UTC [10] LOG:  execute __asyncpg_stmt_1__: {beat}
2026-03-01 06:30:00.005 UTC [12] LOG:  checkpoint starting: time
"""


def test_statements_are_counted_by_name_and_unknown_ones_by_how_they_begin() -> None:
    beat = sql.node.HEARTBEAT.text.strip().replace("\n", "\n\t")
    assert idle.count_statements(LOG.format(beat=beat)) == {"node/heartbeat": 2, "BEGIN": 1, "SELECT 1 FROM nowhere": 1}


@pytest.mark.long
async def test_an_idle_node_is_looked_at_for_as_long_as_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "SETTLE_SECONDS", 2.0)
    told: list[int] = []
    result = await idle.bench_idle(10, 4, told.append)
    assert told == [1, 2, 3, 4]
    assert result.statements["node/heartbeat"] > 0
    assert sum(result.statements.values()) == pytest.approx(result.queries_per_second)
    assert dict(idle.as_table(result))["statements per second"] == f"{result.queries_per_second:.2f}"


@pytest.mark.long
async def test_jobs_of_a_killed_node_go_on_and_no_tick_is_lost() -> None:
    told: list[int] = []
    result = await failover.bench_failover(30, 1, told.append)
    assert told == [1]
    (only,) = result.rounds
    assert 0 < only.jobs < 30
    assert only.first_seconds <= only.last_seconds
    assert (result.missing, result.doubled) == (0, 0)
    assert result.expected > 0
    assert result.as_document()["first_seconds"] == only.first_seconds
    assert dict(failover.as_table(result))["ticks missing / doubled"].startswith("0 / 0 of ")
