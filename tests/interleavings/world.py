"""The small state the actors play on, what they learned, the recovery after them, and the rules that must then hold.

Two nodes meet: 1 is expired, so that it may be evicted at any moment, and 2 is healthy. Node 3 comes afterwards, alone:
it evicts all other nodes, rescues, takes over, fires what is due and settles everything, as survivors would. Then:

    each expected tick is accounted for exactly once, and nothing else is
    no run is left behind, and none is both live and finished
    tokens of a run rise with every grant, and it ends under the last one granted
    each run is settled at most once, with the words of the settle that was accepted
    after a cancel was acknowledged, its run is granted to no node
    after a pause was acknowledged, nothing is released
    no node is evicted whose lease has not ended, and nothing is granted to a node that was evicted
    terms rise
    each on-demand run whose enqueue committed ends exactly once, and one whose enqueue was rolled back does not exist
    a cancel that found nothing was of a run that had ended

`rules.py` has those that must hold after every step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from detent.domain.identity import MANUAL, RunKey
from detent.domain.run import Claim, End, HeldRun
from detent.domain.states import CODES, RunStatus
from detent.store.live_runs import claims_of
from detent.store.settlements import settle_statements
from detent.store.statement import STATEMENTS
from detent.store.tasks import TaskHead, claims_of_tasks, release_laned_on
from tests.support.ends import ended_run
from tests.support.factories import LONG_AGO

OLD, NEW, SURVIVOR = 1, 2, 3
PARTITION = 0
INCARNATION = 1
FIRST_TOKEN = INCARNATION << 22 | 1
CRASH_CAP = 3
SECOND = timedelta(seconds=1)
MAX_PASSES = 20
# Schedule numbers of the cursors here, with their steps.
STEPS = {1: 1 * SECOND, 2: 3 * SECOND}
EVERY_SECOND, EVERY_THREE = 1, 2
FAR_AWAY = LONG_AGO.replace(year=2100)

CLEAR = """
DELETE FROM live_runs; DELETE FROM run_history; DELETE FROM attempts; DELETE FROM cursors; DELETE FROM nodes;
DELETE FROM job_revisions; DELETE FROM jobs; DELETE FROM catchups; DELETE FROM segments;
DELETE FROM elections; DELETE FROM former_nodes; DELETE FROM node_take_overs;
DELETE FROM backlog; DELETE FROM unique_keys; DELETE FROM key_places; DELETE FROM key_rates;
UPDATE partitions SET holder = 1, term = 1, nomination = 0 WHERE partition = 0;
INSERT INTO nodes (node, ttl, expires_at, host, pid, roles, version, tzdata)
SELECT n, '1 hour', now() + CASE n WHEN 1 THEN '-1 second' ELSE '1 hour' END::interval, 'test', 1, '{}', '', ''
  FROM generate_series(1, 3) AS n;
INSERT INTO jobs (job, id, name, partition, target, definition) OVERRIDING SYSTEM VALUE
SELECT n, gen_random_uuid(), n::text, 0, 'http', '{}' FROM generate_series(1, 2) AS n;
-- The queue of ticks is that of on-demand runs too, so that every actor serves one queue.
UPDATE queues SET needs = 'task:' WHERE queue = 1 AND needs = '';
"""

ANY_WAITING = "SELECT EXISTS (SELECT FROM backlog) OR EXISTS (SELECT FROM live_runs WHERE not_before = 'infinity')"


def tick(number: int) -> datetime:
    return LONG_AGO + number * SECOND


def cursor(job: int = 1, schedule: int = EVERY_SECOND, lanes: int = 1) -> str:
    return (
        "INSERT INTO cursors (job, next_tick, fire_at, queue, schedule, partition, lanes)"
        f" VALUES ({job}, '{tick(0)}', '{tick(0)}', 1, {schedule}, {PARTITION}, {lanes});"
    )


def run(job: int = 1, owner: int | None = None, *, at: int = 0, crashes: int = 0, started: bool = False) -> str:
    """A live run of a tick that has fired, with its cursor beyond it."""
    return (
        "INSERT INTO cursors (job, next_tick, fire_at, last_tick, queue, schedule, partition)"
        f" VALUES ({job}, '{tick(at + 1)}', '{tick(at + 1)}', '{tick(at)}', 1, {EVERY_SECOND}, {PARTITION});"
        "INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority, crashes,"
        f" started_at) VALUES ({job}, '{tick(at)}', {FIRST_TOKEN}, {owner or 'NULL'}, '{tick(at)}', 1, 1, 0, 5,"
        f" {crashes}, {'now()' if started else 'NULL'});"
    )


def owes(first: int, last: int, *, lanes: int = 1) -> str:
    """A job whose live tick is far away, with a range of ticks to make up for."""
    return (
        "INSERT INTO cursors (job, next_tick, fire_at, last_tick, queue, schedule, partition, lanes)"
        f" VALUES (1, '{FAR_AWAY}', '{FAR_AWAY}', '{tick(last)}', 1, {EVERY_SECOND}, {PARTITION}, {lanes});"
        "INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over)"
        f" VALUES (1, {PARTITION}, 'missed', {EVERY_SECOND}, '{tick(first)}', '{tick(last)}', '{tick(first)}', 9);"
    )


def waits(lane: int = -1, owner: int | None = None, *, started: bool = False, cancel: bool = False) -> str:
    """A run of tick 0, one of tick 1 that waits for its end, and the cursor beyond both."""
    values = f"1, '{tick(1)}', {FIRST_TOKEN}, NULL, '{tick(1)}', 1, 1, {lane}, 5"
    return (
        run(owner=owner, started=started)
        + f"UPDATE cursors SET lanes = {lane}, last_tick = '{tick(1)}', next_tick = '{tick(2)}', fire_at = '{tick(2)}';"
        + f"UPDATE live_runs SET cancel = {cancel};"
        + "INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority)"
        f" VALUES ({values});"
    )


def overlaps(owner: int) -> str:
    """Runs of ticks 0 and 1 in the lanes of these numbers, and the cursor beyond both."""
    values = f"1, '{tick(1)}', {FIRST_TOKEN}, {owner}, '{tick(1)}', 1, 1, 1, 5"
    return (
        run(owner=owner)
        + f"UPDATE cursors SET lanes = 2, last_tick = '{tick(1)}', next_tick = '{tick(2)}', fire_at = '{tick(2)}';"
        + "INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority)"
        f" VALUES ({values});"
    )


def held(job: int = 1, *, at: int = 0, lane: int = 0) -> Claim:
    """The claim on a run made by `run` or `overlaps`."""
    return Claim(job, lane, tick(at), 0, FIRST_TOKEN, 1)


class Grant(NamedTuple):
    key: RunKey
    token: int
    node: int


@dataclass
class World:
    """What the actors learned from answers that they saw, in the order in which it was committed."""

    expected: dict[int, set[datetime]]
    grants: list[Grant] = field(default_factory=list)
    accepted: list[tuple[HeldRun, int]] = field(default_factory=list)
    refused: list[HeldRun] = field(default_factory=list)
    fired: list[RunKey] = field(default_factory=list)
    # On-demand runs: those at the beginning, those whose enqueue was acknowledged, those that an enqueue found because
    # they have its unique key, and those whose transaction was rolled back.
    given: list[RunKey] = field(default_factory=list)
    enqueued: list[RunKey] = field(default_factory=list)
    found: list[RunKey] = field(default_factory=list)
    withdrawn: list[RunKey] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)
    # Per acknowledged cancel: the run, whether it ended on the spot, and how many grants there had been.
    cancelled: list[tuple[RunKey, bool, int]] = field(default_factory=list)
    # Per cancel that found no such run: how many grants there had been.
    not_found: list[tuple[RunKey, int]] = field(default_factory=list)
    # What an actor itself saw to be wrong.
    faults: list[str] = field(default_factory=list)
    # Ticks that were released, and how many had been when a pause was acknowledged.
    released: list[datetime] = field(default_factory=list)
    paused: int | None = None
    # Per eviction: the node, and how many grants there had been.
    evicted: list[tuple[int, int]] = field(default_factory=list)

    def evict(self, nodes: Iterable[int]) -> None:
        self.evicted += [(node, len(self.grants)) for node in nodes]

    def cancel(self, key: RunKey, ended: bool) -> None:
        self.cancelled.append((key, ended, len(self.grants)))

    def miss(self, key: RunKey) -> None:
        self.not_found.append((key, len(self.grants)))

    def retry(self, claim: Claim) -> None:
        """A failed attempt was accepted under this claim, which must be the last one granted."""
        last = max((grant.token for grant in self.grants if grant.key == claim.key), default=0)
        if claim.token < last:
            self.faults.append(f"a retry under token {claim.token} was accepted although {last} had been granted")

    def grant(self, node: int, claims: Iterable[Claim]) -> None:
        self.grants += [Grant(claim.key, claim.token, node) for claim in claims]


def settlement(claim: Claim, node: int) -> HeldRun:
    return ended_run(claim, claim.scheduled_at, claim.scheduled_at, 1, result=words_of(claim, node))


def words_of(claim: Claim, node: int) -> str:
    """The result by which history shows whose settle it took."""
    return f"node {node}, token {claim.token}"


def result_of(run: HeldRun) -> str | None:
    return run.end.result if isinstance(run.end, End) else None


class Survivor:
    """The recovery: node 3 and the product's own statements, one after another."""

    def __init__(self, admin: Any, world: World) -> None:
        self._admin = admin
        self._world = world

    async def _run(self, name: str, *arguments: object) -> list[Any]:
        rows: list[Any] = await self._admin.fetch(STATEMENTS[name].text, *arguments)
        return rows

    async def recover(self) -> None:
        await self._admin.execute("UPDATE nodes SET expires_at = now() - '1 s'::interval WHERE node <> 3")
        await self._run("node/evict")
        for node in (await self._run("partition/read_share", SURVIVOR))[0]["evicted"]:
            while await self._run("run/rescue", node, CRASH_CAP, 1000):
                pass
            taken = await self._run("partition/take", SURVIVOR, INCARNATION, [PARTITION], [None])
            self._world.terms += [row["term"] for row in taken]
            await self._run("node/delete", node)
        await self._run_what_waits()
        for _ in range(MAX_PASSES):
            released = await self._release_what_is_owed()
            if not await self._fire_what_is_due() and not released:
                return
            await self._run_what_waits()
        raise AssertionError("the recovery does not come to an end")

    async def _release_what_is_owed(self) -> bool:
        due = [row for row in await self._run("catch_up/list_due", [PARTITION], [0], 10) if not row["dead"]]
        for row in due:
            following = row["next_tick"] + SECOND
            arguments = (row["catchup"], row["next_tick"], row["generation"], following)
            async with self._admin.transaction():
                await self._run("catch_up/lock_jobs", SURVIVOR, [row["job"]])
                last = following > row["until"]
                sent = [[value] for value in (*arguments[:3], None if last else following)]
                await self._run("catch_up/release", SURVIVOR, INCARNATION, MANUAL, *sent)
        return bool(due)

    async def _run_what_waits(self) -> None:
        if deleted := await self._run("task/list_deleted_jobs"):
            await self._run("task/cancel_of_jobs", [row["job"] for row in deleted], "job deleted", 1000)
        while await self._promote_and_run():
            pass

    async def _promote_and_run(self) -> bool:
        await self._run("run/promote", None, 1000)
        claims = await self._claim_from_backlog() if await self._admin.fetchval(ANY_WAITING) else []
        claims += claims_of(await self._run("run/claim", SURVIVOR, INCARNATION, [1], 1000, False))
        self._world.grant(SURVIVOR, claims)
        for statement, columns in settle_statements([settlement(claim, SURVIVOR) for claim in claims]):
            await self._run(statement.name, SURVIVOR, *columns)
        return bool(claims)

    async def _claim_from_backlog(self) -> list[Claim]:
        """Claim on-demand runs of tasks; those of jobs with a schedule get free lanes, and are claimed there."""
        await self._run("run/admit", *_columns(await self._run("run/list_unadmitted_keys", "", 0, 1000), "job", "key"))
        await self._run("task/unpark", *_columns(await self._run("task/list_parked_keys", 0, "", 1000), "job", "key"))
        heads = await self._run("task/list_heads", [1], None)
        await release_laned_on(self._admin, [TaskHead(*head.values()) for head in heads if head["laned"]])
        claims: list[Claim] = []
        for keyed, name in ((False, "task/claim"), (True, "task/claim_keyed")):
            some = [head for head in heads if not head["laned"] and head["keyed"] is keyed]
            where = _columns(some, "job", "queue", "priority")
            claims += claims_of_tasks(await self._run(name, SURVIVOR, INCARNATION, *where, 1000, False, 1000, 1000))
        return claims

    async def _fire_what_is_due(self) -> bool:
        due = [
            (row["job"], row["next_tick"], row["generation"], row["next_tick"] + STEPS[row["schedule"]])
            for row in await self._run("cursor/read", sorted(self._world.expected))
            if row["next_tick"] is not None and row["next_tick"] <= max(self._world.expected[row["job"]])
        ]
        if due:
            jobs, ticks, generations, following = zip(*sorted(due), strict=True)
            columns = (jobs, None, ticks, None, generations, None, following, None)
            await self._run("cursor/fire", SURVIVOR, INCARNATION, None, *columns)
        return bool(due)


def _columns(rows: list[Any], *names: str) -> list[list[Any]]:
    return [[row[name] for row in rows] for name in names]


async def violations(admin: Any, world: World) -> list[str]:
    """What is wrong after the recovery; empty is right."""
    live = await admin.fetch("SELECT * FROM live_runs")
    waiting = await admin.fetch("SELECT * FROM backlog")
    past = await admin.fetch("SELECT * FROM run_history")
    found = [*world.faults]
    found += [f"stranded: {_name(_key(row))} is still held by node {row['owner']}" for row in live]
    found += [f"stranded: {_name(_key(row))} is still in the backlog" for row in waiting]
    found += _account(world, [*live, *waiting, *past], await admin.fetch("SELECT * FROM catchups"))
    found += _judge_tokens(world, {_key(row): row for row in past})
    found += _judge_settles(world, {_key(row): row for row in past})
    found += _judge_cancels(world, {_key(row): row for row in past})
    found += _judge_evictions(world)
    if world.paused is not None and len(world.released) > world.paused:
        found.append(f"released after the pause was acknowledged: {world.released[world.paused :]}")
    if any(later <= earlier for earlier, later in zip(world.terms, world.terms[1:], strict=False)):
        found.append(f"terms do not rise: {world.terms}")
    return found


def _key(row: Any) -> RunKey:
    return RunKey(row["job"], row["scheduled_at"], row["serial"])


def _keys(row: Any) -> list[RunKey]:
    """A range of ticks that did not run stands in one row."""
    if "until" in row.keys() and row["until"] is not None:  # noqa: SIM118 - a record, not a mapping
        return _ticks(row["job"], row["scheduled_at"], row["until"])
    return [_key(row)]


def _ticks(job: int, first: datetime, last: datetime) -> list[RunKey]:
    return [RunKey(job, first + number * SECOND) for number in range((last - first) // SECOND + 1)]


def _name(key: RunKey) -> str:
    return f"{key.job}@{key.scheduled_at:%H:%M:%S}" + (f"#{key.serial}" if key.serial else "")


def _account(world: World, runs: list[Any], owed: list[Any]) -> list[str]:
    """Exactly one row for each tick and each on-demand run, live, finished, or still owed by a job that is paused."""
    rows: Counter[RunKey] = Counter(key for row in runs for key in _keys(row))
    rows.update(key for row in owed for key in _ticks(row["job"], row["next_tick"], row["until"]))
    expected = {RunKey(job, at, 0) for job, ticks in world.expected.items() for at in ticks}
    expected.update(world.given, world.enqueued, world.found)
    lost = [f"lost: {_name(key)} has no run" for key in sorted(expected - rows.keys())]
    doubled = [f"doubled: {_name(key)} has {count} runs" for key, count in rows.items() if count > 1]
    # An enqueue whose reply was never seen may have committed.
    foreign = [f"foreign: {_name(key)} is not a tick" for key in rows.keys() - expected if key.serial == 0]
    foreign += [f"foreign: {_name(key)} was rolled back" for key in world.withdrawn if key in rows]
    return lost + doubled + foreign


def _judge_tokens(world: World, past: dict[RunKey, Any]) -> list[str]:
    tokens: dict[RunKey, list[int]] = defaultdict(list)
    for grant in world.grants:
        tokens[grant.key].append(grant.token)
    found = [
        f"tokens of {_name(key)} do not rise: {given}" for key, given in tokens.items() if sorted(set(given)) != given
    ]
    for key, row in past.items():
        if row["token"] is not None and row["token"] < max(tokens.get(key, [0])):
            found.append(f"{_name(key)} ended under token {row['token']} although {max(tokens[key])} had been granted")
    return found


def _judge_settles(world: World, past: dict[RunKey, Any]) -> list[str]:
    counts = Counter(item.claim.key for item, _ in world.accepted)
    found = [f"{_name(key)} was settled {count} times" for key, count in counts.items() if count > 1]
    for item, node in world.accepted:
        row = past.get(item.claim.key)
        if row is None or (row["token"], row["node"], row["result"]) != (item.claim.token, node, result_of(item)):
            found.append(
                f"the settle of {_name(item.claim.key)} by node {node} was accepted and is not what history says"
            )
    for item in world.refused:
        row = past.get(item.claim.key)
        if row is not None and row["result"] is not None and row["result"] == result_of(item):
            found.append(f"the settle of {_name(item.claim.key)} was refused and is what history says")
    return found


def _judge_evictions(world: World) -> list[str]:
    found = [f"node {node} was evicted although it was healthy" for node, _ in world.evicted if node != OLD]
    for node, before in world.evicted:
        if any(grant.node == node for grant in world.grants[before:]):
            found.append(f"node {node} was given a run after it had been evicted")
    return found


def _judge_cancels(world: World, past: dict[RunKey, Any]) -> list[str]:
    found = []
    for key, ended, before in world.cancelled:
        if any(grant.key == key for grant in world.grants[before:]):
            found.append(f"{_name(key)} was granted after its cancel had been acknowledged")
        if ended and past[key]["status"] != CODES[RunStatus.CANCELLED]:
            found.append(f"{_name(key)} was cancelled and is not")
    for key, before in world.not_found:
        if any(grant.key == key for grant in world.grants[before:]):
            found.append(f"{_name(key)} was granted after a cancel had found no such run")
    return found
