"""Every statement that writes hot tables names its fence. No database: this reads the files.

A statement that is added must be put into `FENCES` below, with the passages by which it is fenced; one that loses a
passage fails here before any race has to happen.
"""

from __future__ import annotations

import re

import pytest

import detent.devtools.sql.bench
import detent.devtools.sql.demo  # noqa: F401 - so that their statements are known too
from detent.store import pooler
from detent.store.statement import STATEMENTS as EVERY_STATEMENT

HOT = ("cursors", "live_runs", "backlog", "partitions", "nodes")
# A locking clause and the second half of an upsert are not separate writes.
WRITE = re.compile(rf"(?<!FOR )(?<!KEY )(?<!DO )\b(?:INSERT INTO|UPDATE|DELETE FROM) ({'|'.join(HOT)})\b")

# What a node does while it is alive: its row is locked, and an eviction is a change of that row's key.
NODE = "fence AS MATERIALIZED ( SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE)"
# What the holder of a run does: the run, its token and its owner, locked in the order of the key and written by key.
HELD = (
    "job = batch.job AND lane = batch.lane AND scheduled_at = batch.scheduled_at AND serial = batch.serial",
    "AND serial = batch.serial AND token = batch.token",
    "AND token = batch.token AND owner = $1",
    "ORDER BY job, lane",
    "r.job = ANY (ARRAY(SELECT job FROM locked)) AND ((r.job, r.lane) IN (SELECT job, lane FROM locked",
)
LEASED = ("scheduled_at = batch.scheduled_at AND serial = batch.serial AND token = batch.token", "FOR UPDATE) l")
# What no tick passes while all are held, or those of its tenant.
OPEN = "(SELECT held_at IS NULL FROM cluster)"
NOT_SUSPENDED = "queue <> ALL (ARRAY(SELECT queue FROM suspended_queues))"
LANE = "ON CONFLICT (job, lane) DO NOTHING RETURNING"

# A claim of runs that wait: the node lives, the job is active, the rows are locked, and they leave the backlog by key.
BACKLOG = (
    NODE,
    "j.status = 'active' AND ($1::bigint IS NULL OR EXISTS (SELECT FROM fence))",
    NOT_SUSPENDED,
    OPEN,
    "FOR UPDATE SKIP LOCKED) b LIMIT",
    "greatest(token, $2::bigint << 22) + 1",
    LANE,
    "((b.serial, b.scheduled_at, b.job) IN (SELECT lane, scheduled_at, job FROM taken)) IS TRUE",
)
HELD_OF_TASKS = (*HELD[:-1], "r.lane = ANY (ARRAY(SELECT lane FROM locked)) AND ((r.job, r.lane) IN (SELECT job, lane")

FENCES: dict[str, tuple[str, ...]] = {
    # leaders: the node fence, and the compare-and-set on tick and generation
    "cursor/fire": (
        NODE,
        "c.job = ANY ($4::bigint[])"
        " AND c.next_tick = coalesce($5::timestamptz, ($6::timestamptz[])[width_bucket(c.job, $4::bigint[])])"
        " AND c.generation = coalesce($7::integer, ($8::integer[])[width_bucket(c.job, $4::bigint[])])",
        "AND EXISTS (SELECT FROM fence)",
        LANE,
        OPEN,
        NOT_SUSPENDED,
    ),
    "cursor/fire_careful": (
        NODE,
        "FROM fence, batch CROSS JOIN LATERAL",
        "job = batch.job AND next_tick = batch.tick AND generation = batch.generation",
        "FOR NO KEY UPDATE SKIP LOCKED",
        LANE,
        OPEN,
        NOT_SUSPENDED,
    ),
    # missed ticks and backfills: the node fence, the job held by the statement before, their own compare-and-set
    "catch_up/release": (
        NODE,
        "FROM fence, batch CROSS JOIN LATERAL",
        "FROM catchups WHERE catchup = batch.catchup AND next_tick = batch.tick FOR UPDATE",
        "ON c.job = r.job AND c.generation = batch.generation",
        LANE,
        OPEN,
        NOT_SUSPENDED,
    ),
    # the worker that claims, for waiting runs without an owner: locked, and a free lane
    "run/promote": (
        "w.lane < 0 AND",
        "ORDER BY w.job, w.lane LIMIT $2 FOR UPDATE OF w SKIP LOCKED",
        LANE,
        "AND r.job IN (SELECT job FROM inserted)",
        "ORDER BY r.job, r.lane FOR UPDATE OF r SKIP LOCKED",
    ),
    "cursor/miss": (
        NODE,
        "FROM batch, fence WHERE c.job = batch.job AND c.next_tick = batch.tick AND c.generation = batch.generation",
        OPEN,
        "$17::boolean = (c.queue = ANY (ARRAY(SELECT queue FROM suspended_queues)))",
    ),
    "cursor/look_at_delays": (
        NODE,
        "FROM fence, batch CROSS JOIN LATERAL",
        "job = batch.job AND next_tick = batch.tick AND generation = batch.generation FOR NO KEY UPDATE SKIP LOCKED",
        "FROM looked WHERE c.job = looked.job",
        OPEN,
    ),
    "partition/take": (
        NODE,
        "batch.number > t.nomination OR batch.number = t.nomination AND coalesce(t.holder, $1) = $1",
        "FROM locked, fence WHERE t.partition = locked.partition",
        "AND NOT n.evicted OFFSET 0",
        "FOR UPDATE",
    ),
    # a database with a new identity: only the process that checked it
    "cluster/adopt": ("IS DISTINCT FROM (w.system_identifier,", "WHERE EXISTS (SELECT FROM adopted)"),
    "cluster/follow": (
        "c.timeline = $1::integer AND w.timeline > c.timeline",
        "FROM nodes n, raised WHERE NOT n.evicted",
    ),
    "partition/release": ("holder = $1", "ORDER BY partition FOR UPDATE"),
    # the end of a tenant: of its jobs alone, and only when no run is left
    "tenant/end_jobs": (
        "WHERE tenant = $1::integer",
        "ORDER BY c.job FOR NO KEY UPDATE",
        "generation = c.generation + 1",
    ),
    "tenant/delete_waiting": (
        "b.serial = ANY (ARRAY(SELECT serial FROM waiting))",
        "((b.serial, b.scheduled_at, b.job) IN (SELECT serial, scheduled_at, job FROM waiting)) IS TRUE",
    ),
    "tenant/delete_jobs": ("status = 'deleted'", "NOT EXISTS (SELECT FROM live_runs r WHERE r.job = j.job)"),
    "job/complete": ("ended AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = c.job)", "SKIP LOCKED"),
    # workers
    "run/claim": (NODE, "FROM fence, ", "owner IS NULL AND lane >= 0", "FOR UPDATE SKIP LOCKED", "greatest(r.token,"),
    "run/claim_offered": (
        NODE,
        "FROM fence, ",
        "AND token = batch.token AND num_nonnulls(owner) = 0 AND lane >= 0",
        "<= now() FOR UPDATE SKIP LOCKED",
        "greatest(r.token,",
    ),
    "run/claim_shares": (
        NODE,
        "FROM fence, ",
        "owner IS NULL AND lane >= 0",
        "FOR UPDATE SKIP LOCKED",
        "greatest(r.token,",
    ),
    # under a limit, in the transaction of the claim; or when a limit is set: nothing but that a run counts
    "limit/use": ("SET limited = true", "r.job = batch.job AND r.lane = batch.lane AND NOT r.limited"),
    "limit/mark_runs": (
        "SET limited = true",
        "owner = $1 AND queue = ANY ($2::integer[])",
        "ORDER BY job, lane FOR UPDATE",
    ),
    "limit/mark_all_runs": ("SET limited = true", "owner IS NOT NULL AND NOT limited", "ORDER BY job, lane FOR UPDATE"),
    "run/start": (*HELD, "owner = $1 FOR UPDATE", "FROM locked WHERE NOT cancel AND NOT begun)) IS TRUE"),
    "run/accompany": ("job = $2 AND lane = $3 AND scheduled_at = $4 AND serial = $5 AND token = $6 AND owner = $1",),
    # locked in the order of the key because of the settings of its connections (test_plans.py)
    "run/settle": (
        "r.job = ANY ($2::bigint[])"
        " AND r.lane = coalesce($3::integer, ($4::integer[])[width_bucket(r.job, $2::bigint[])])"
        " AND r.scheduled_at = coalesce($5::timestamptz, ($6::timestamptz[])[width_bucket(r.job, $2::bigint[])])"
        " AND r.serial = coalesce($7::integer, ($8::integer[])[width_bucket(r.job, $2::bigint[])])"
        " AND r.token = coalesce($9::bigint, ($10::bigint[])[width_bucket(r.job, $2::bigint[])])"
        " AND r.owner = $1 RETURNING",
    ),
    "run/settle_lanes": (*HELD, "owner = $1 FOR UPDATE", "NOT IN (SELECT job, lane, scheduled_at, serial, token FROM"),
    "run/settle_retry": (*HELD, "owner = $1 FOR UPDATE"),
    "run/start of tasks": (*HELD_OF_TASKS, "owner = $1 FOR UPDATE"),
    "task/settle": (*HELD_OF_TASKS, "owner = $1 FOR UPDATE"),
    "task/settle_succeeded": (*HELD_OF_TASKS, "owner = $1 AND attempt = 1 FOR UPDATE"),
    "task/settle_retry": (*HELD_OF_TASKS, "owner = $1 FOR UPDATE"),
    "run/give_back": (*HELD, "owner = $1 FOR UPDATE", "token = r.token + 1"),
    "run/put_off": (
        *HELD[:-1],
        "r.job = ANY (ARRAY(SELECT job FROM locked)) AND r.job = locked.job AND r.lane = locked.lane",
        "owner = $1 FOR UPDATE",
        "token = r.token + 1",
    ),
    "task/put_off": (*HELD_OF_TASKS, "owner = $1 FOR UPDATE", "token = r.token + 1"),
    # workers that pull: the lease is the fence
    "pull/claim": (
        "owner IS NULL AND lane >= 0",
        "AND num_nonnulls(owner) = 0 AND lane >= 0",
        "FOR UPDATE SKIP LOCKED",
        "greatest(r.token,",
        "INSERT INTO pull_leases",
    ),
    "pull/give_back": (*LEASED, "r.token = leases.token AND r.owner = -leases.worker", "token = r.token + 1"),
    "pull/settle": (*LEASED, "token = leases.token AND owner = -leases.worker FOR UPDATE"),
    "pull/rescue": (
        "lease_until < now()",
        "token = leases.token AND owner = -leases.worker FOR UPDATE",
        "token = r.token + 1",
    ),
    # what a target has accepted: from the hold of its node, or under the same token from whichever node holds it
    "pull/accept": (*HELD[:4], "owner = $1 FOR UPDATE", "r.job = locked.job AND r.lane = locked.lane"),
    "pull/accept_early": (
        "scheduled_at = $3 AND serial = $4 AND token = $5 AND owner > 0 FOR UPDATE) ticks",
        "scheduled_at = $3 AND serial = $4 AND token = $5 AND owner > 0 FOR UPDATE) tasks",
        "JOIN jobs j ON j.job = r.job AND j.tenant = $1",
        "d.definition->'target'->'callback' IS NOT NULL",
        "r.job = locked.job AND r.lane = locked.lane",
    ),
    # survivors: only of a node that is evicted
    "run/rescue": (
        "r.owner = $1 AND EXISTS (SELECT FROM nodes WHERE node = $1 AND evicted)",
        "ORDER BY r.job, r.lane LIMIT $3 FOR UPDATE OF r",
        "FROM locked WHERE dead OR stop)) IS TRUE",
        "FROM locked WHERE NOT dead AND NOT stop)) IS TRUE",
        "token = r.token + 1",
    ),
    "node/delete": ("n.node = $1 AND n.evicted", "NOT EXISTS (SELECT FROM live_runs WHERE owner = $1)"),
    "node/evict": ("NOT evicted AND (expires_at < now() OR expires_at > now() + 2 * ttl)",),
    "node/report_circuits": ("node = $1 AND NOT evicted",),
    "node/drain": ("node = $1 AND NOT evicted",),
    # a node about itself
    "node/join": ("INSERT INTO nodes",),
    "node/heartbeat": ("node = $1 AND NOT evicted",),
    "node/leave": ("SET evicted = true WHERE node = $1",),
    # people: the generation they read, a free lane, or a run without an owner
    # Of jobs that the demonstration has made itself: never back, and only where no tick is left.
    "demo/move_cursors": ("c.next_tick IS NULL OR c.next_tick > batch.tick",),
    "demo/complete_jobs": ("AND next_tick IS NULL RETURNING job",),
    "job/add": ("WHERE job IN (SELECT job FROM added)",),
    "job/revise": (
        "generation = c.generation + 1",
        "ORDER BY job) batch CROSS JOIN LATERAL ( SELECT FROM cursors"
        " WHERE job = batch.job AND generation = batch.generation",
        "FOR NO KEY UPDATE) c",
    ),
    "cursor/mark_crowded": ("SET crowded = true", "c.job = ANY ($1::bigint[])"),
    "cursor/move": (
        "generation = c.generation + 1",
        "ORDER BY job) batch CROSS JOIN LATERAL ( SELECT FROM cursors"
        " WHERE job = batch.job AND generation = batch.generation",
        "AND last_tick = coalesce(batch.last_tick, '-infinity') FOR NO KEY UPDATE) c",
    ),
    "skip/add": ("generation = generation + 1", "job = $1::bigint AND generation = $5::integer"),
    "skip/remove": ("generation = generation + 1", "job = $1::bigint AND generation = $3::integer"),
    "job/collect": (
        "FOR NO KEY UPDATE OF c SKIP LOCKED",
        "j.job = done.job AND j.collect_at <= now() AND j.status = 'completed'",
        "generation = c.generation + 1",
    ),
    # a run that waits for a place of its concurrency key becomes ready with it
    "run/admit": (
        "not_before = 'infinity' AND owner IS NULL AND lane >= 0 ORDER BY priority DESC, scheduled_at, job, lane"
        " FOR UPDATE SKIP LOCKED) r",
        "pg_visible_in_snapshot(x.taken_by, pg_current_snapshot())",
        "r.job = timed.job AND r.lane = timed.lane",
    ),
    # on-demand runs: from the backlog under its row locks into a lane of their own, or one of their job
    "task/claim": (*BACKLOG, "least($9::bigint, $8::bigint - ("),
    "task/claim_keyed": (*BACKLOG, "pg_visible_in_snapshot(x.taken_by, pg_current_snapshot())"),
    "task/cancel": ("AND job = batch.job FOR UPDATE) b)", "IN (SELECT serial, scheduled_at, job FROM locked)) IS TRUE"),
    "task/cancel_of_jobs": ("FOR UPDATE SKIP LOCKED", "IN (SELECT serial, scheduled_at, job FROM locked)) IS TRUE"),
    "task/unpark": ("FOR UPDATE SKIP LOCKED) b)", "IN (SELECT serial, scheduled_at, job FROM next)) IS TRUE"),
    "task/rerun": ("j.status <> 'deleted'", "nextval('on_demand_serials')"),
    "task/redrive": (
        "status = 2 AND reason IS DISTINCT FROM 'discarded' FOR UPDATE) h",
        "FROM dead d JOIN gone USING (job, scheduled_at, serial)",
        "greatest(d.token, (SELECT incarnation FROM cluster) << 22) + 1",
    ),
    "task/claim_parked": (
        NODE,
        "AND c.task AS starts",
        "places.starts AND EXISTS (SELECT FROM fence) AND b.queue = ANY ($5::integer[])",
        NOT_SUSPENDED,
        OPEN,
        "FOR UPDATE SKIP LOCKED) b)",
        "pg_visible_in_snapshot(x.taken_by, pg_current_snapshot())",
        *BACKLOG[-3:],
    ),
    "task/release_laned": (
        "FOR UPDATE SKIP LOCKED) b)",
        "j.status <> 'deleted'",
        OPEN,
        NOT_SUSPENDED,
        LANE,
        "((b.serial, b.scheduled_at, b.job) IN (SELECT serial, scheduled_at, job FROM taken)) IS TRUE",
    ),
    "run/rerun": (LANE,),
    "run/redrive": (LANE, "greatest(token, (SELECT incarnation FROM cluster) << 22) + 1"),
    "run/cancel": (
        "(SELECT * FROM found ORDER BY job, lane) batch",
        f"{HELD[0]} FOR UPDATE",
        "FROM locked WHERE owner IS NULL)) IS TRUE",
        "FROM locked WHERE owner IS NOT NULL)) IS TRUE",
    ),
    "run/end_of_deleted_jobs": (
        "j.status = 'deleted'",
        "AND r.owner IS NULL ORDER BY r.job, r.lane FOR UPDATE OF r)",
        "(r.job, r.lane) IN (SELECT job, lane FROM locked)) IS TRUE",
    ),
    "run/quarantine": (
        "scheduled_at = $4 AND serial = $5 AND token = $6 AND owner = $1 FOR UPDATE)",
        "r.job = locked.job AND r.lane = locked.lane",
    ),
    # what is left of a deleted job, when history knows nothing of it any more
    "job/purge": (
        "status = 'deleted' AND updated_at < now() - make_interval(days => $1::integer)",
        "NOT EXISTS ( SELECT FROM kept k WHERE k.since <= j.updated_at",
        "AND k.made_at <= j.updated_at + interval '1 day')",
        "NOT EXISTS (SELECT FROM live_runs r WHERE r.job = j.job)",
    ),
    # for measuring, on a throw-away database
}


def statements() -> dict[str, str]:
    """Each statement without its comments, in one line."""
    texts = {name: re.sub(r"--[^\n]*", "", each.text) for name, each in sorted(EVERY_STATEMENT.items())}
    return {name: " ".join(text.split()) for name, text in texts.items()}


STATEMENTS = statements()
# What measures the raw limit writes without being asked anything, on a throw-away database.
WRITERS = {
    name: sorted(set(WRITE.findall(text)))
    for name, text in STATEMENTS.items()
    if WRITE.search(text) and not name.startswith("bench/")
}


def test_every_statement_that_writes_a_hot_table_has_its_fence_named_here() -> None:
    unnamed = {name: tables for name, tables in WRITERS.items() if name not in FENCES}
    assert not unnamed, f"these write hot tables: add to FENCES by what each is fenced: {unnamed}"
    gone = FENCES.keys() - WRITERS.keys()
    assert not gone, f"these no longer write a hot table, or are gone: take them out of FENCES: {gone}"


@pytest.mark.parametrize("name", FENCES)
def test_a_writing_statement_has_its_fence(name: str) -> None:
    for passage in FENCES[name]:
        assert " ".join(passage.split()) in _loosened(STATEMENTS[name]), f"{name}.sql does not say: {passage}"


def _loosened(text: str) -> str:
    """As the passages are written: one space inside an opening parenthesis of the fence."""
    return text.replace("fence AS MATERIALIZED (SELECT", "fence AS MATERIALIZED ( SELECT")


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_by_the_place_of_a_row(name: str) -> None:
    """After a wait, a ctid is that of a version the statement cannot see."""
    assert "ctid" not in STATEMENTS[name]


@pytest.mark.parametrize("name", [name for name, tables in WRITERS.items() if "live_runs" in tables])
def test_rows_of_live_runs_are_changed_by_their_whole_key(name: str) -> None:
    changes = re.findall(r"(?<!FOR )(?:UPDATE|DELETE FROM) live_runs\b", STATEMENTS[name])
    joined, listed = r"r\.job = \w+\.job AND r\.lane = \w+\.lane", r"\(r\.job, r\.lane\) IN \(SELECT job, lane FROM"
    by_batch = r"r\.job = ANY \(\$2::bigint\[\]\) AND r\.lane = coalesce"
    by_key = re.findall(f"{joined}|{listed}|{by_batch}", STATEMENTS[name])
    assert len(by_key) >= len(changes), f"{name}.sql changes live_runs {len(changes)} times, {len(by_key)} times by key"


def test_only_the_statements_of_leaders_take_the_node_fence_and_the_key_lock_is_spelt_alike() -> None:
    # These write no hot table.
    beside = {"catch_up/lock_jobs", "incident/evaluate_expectations", "secret/keep", "set_aside/add"}
    fenced = {name for name, text in STATEMENTS.items() if "FOR KEY SHARE" in text} - beside
    assert fenced == {name for name, passages in FENCES.items() if NODE in passages}
    assert all(pooler.FENCE in STATEMENTS[name] for name in fenced), "through a pooler it is made wider"


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("UPDATE cursors SET x", ["cursors"]),
        ("SELECT FROM cursors FOR UPDATE", []),
        ("SELECT FROM live_runs FOR NO KEY UPDATE", []),
        ("INSERT INTO jobs DO UPDATE SET x", []),
        ("WITH d AS (DELETE FROM live_runs r) INSERT INTO nodes", ["live_runs", "nodes"]),
        ("UPDATE cursors_of_others SET x", []),
    ],
)
def test_writes_are_distinguished_from_locks(text: str, writes: list[str]) -> None:
    assert WRITE.findall(text) == writes


def test_lines_and_progress_are_written_by_the_token_of_their_attempt() -> None:
    """They need no fence: an attempt that lost its run adds to its own lines only."""
    lines = " ".join(EVERY_STATEMENT["output/add"].text.split())
    assert "ON CONFLICT (job, scheduled_at, serial, token, part) DO UPDATE" in lines
    progress = " ".join(EVERY_STATEMENT["output/add_progress"].text.split())
    assert "WHERE run_progress.token <= excluded.token" in progress


@pytest.mark.parametrize("name", ["effect/add_step", "effect/mark", "effect/verify_hold"])
def test_what_a_handler_writes_names_run_token_and_owner(name: str) -> None:
    text = " ".join(EVERY_STATEMENT[name].text.replace("r.", "").split())
    run = "job = $2::bigint AND lane = $3::integer AND scheduled_at = $4::timestamptz AND serial = $5::integer"
    assert f"{run} AND token = $6::bigint AND owner = $1::bigint" in text


def test_no_hot_statement_touches_steps_or_marks() -> None:
    """A run without steps costs what it cost before: only handlers, requests about one run, and upkeep read them."""
    touching = {name for name, each in EVERY_STATEMENT.items() if re.search(r"run_steps|effect_marks", each.text)}
    beside = {"job/purge", "tenant/count_of_jobs", "tenant/count_rest", "tenant/delete_history", "tenant/delete_rest"}
    beside |= {"tenant/delete_waiting", "tenant/export_steps"}
    assert {name for name in touching if not name.startswith("effect/")} == beside
