"""One statement that finds the due work other than firing and executing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from detent.store import Store
from detent.store.upkeep import PendingUpkeep
from tests.support.factories import add_job, add_live_run

SOON = timedelta(seconds=5)
OLD_ANSWER = (
    "INSERT INTO requests (tenant, key, digest, status, headers, body, created_at)"
    " VALUES (1, 'k', sha256(''), 200, '{}', '\\x00', now() - interval '2 days')"
)

OVERDUE = (
    "INSERT INTO pull_leases (job, scheduled_at, serial, token, worker, tenant, lane, ends_at, lease, lease_until)"
    " SELECT job, scheduled_at, 0, 1, 1, 1, 0, now() + interval '1 hour', interval '30 s', now() - interval '1 s'"
    " FROM live_runs"
)

ENDED_SESSION = (
    "WITH key AS (INSERT INTO api_keys (id, tenant, digest, scope) VALUES ('aaaaaaaaaa', 1, sha256(''), 'read')"
    " RETURNING id) INSERT INTO sessions (digest, key, expires_at) SELECT sha256(''), id, now() FROM key"
)


async def due(store: Store, look: Any) -> set[str]:
    found = await store.upkeep.due(await look.fetchval("SELECT now()"), SOON)
    return {name for name in PendingUpkeep._fields if getattr(found, name)}


async def test_where_there_is_nothing_to_do_one_statement_says_so(verbs: Store, look: Any) -> None:
    await add_live_run(look, await add_job(look))
    assert await due(verbs, look) == set()


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE cursors SET ended = true, next_tick = NULL, fire_at = NULL", "ended"),
        ("UPDATE live_runs SET lane = -1", "waiting"),
        (OVERDUE, "leases"),
        (OLD_ANSWER, "requests"),
        ("INSERT INTO changes (at, channel, payload) VALUES (now() - interval '3 minutes', 'c', 'p')", "changes"),
        (ENDED_SESSION, "sessions"),
        ("UPDATE jobs SET status = 'paused', paused_until = now() + interval '3 seconds'", "pauses"),
    ],
)
async def test_what_there_is_to_do_is_reported(verbs: Store, look: Any, statement: str, what: str) -> None:
    await look.execute("DELETE FROM pull_leases")
    await add_live_run(look, await add_job(look))
    await look.execute(statement)
    assert await due(verbs, look) == {what}
