"""The protocol with one rule removed from its SQL. A harness that finds nothing wrong with these proves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from detent.store import sql
from detent.store.statement import STATEMENTS
from tests.interleavings import scenarios, scripts
from tests.interleavings.scenarios import Scenario
from tests.interleavings.world import NEW, OLD

FENCE = "FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE"


@dataclass(frozen=True)
class Mutant:
    name: str
    scenario: Scenario
    texts: Mapping[str, str]

    # The same scenario with the unchanged protocol, where an actor is changed too.
    original: Scenario | None = None

    @property
    def sound(self) -> Scenario:
        return self.original or self.scenario

    @property
    def play(self) -> Scenario:
        return self.scenario.mutated(self.texts)


def changed(name: str, *replacements: tuple[str, str]) -> str:
    """The text of a statement with each passage replaced; each must occur exactly once."""
    text = STATEMENTS[name].text
    for before, after in replacements:
        if text.count(before) != 1:
            raise AssertionError(f"{name}.sql no longer says {before!r} once: adapt the mutant to it")
        text = text.replace(before, after)
    return text


def without_fence(name: str) -> str:
    return changed(name, (FENCE, FENCE.removesuffix(" FOR KEY SHARE")))


# The other arguments of the fire: a server has to know their types.
EXPECTED_GENERATION = "c.generation = coalesce($7::integer, ($8::integer[])[width_bucket(c.job, $4::bigint[])])"
GENERATION = "num_nulls($7::integer, $8::integer[]) >= 0"
UNUSED = f"{GENERATION} AND num_nulls($9::timestamptz, $10::timestamptz[], $11::timestamptz[]) >= 0"


def cursor_alone() -> str:
    """The fire's first half: the cursor moves and nothing is inserted."""
    return changed(
        "cursor/fire",
        ("FROM moved WHERE job NOT IN (SELECT job FROM occupied)", "FROM moved WHERE false"),
        ("WHERE (SELECT made < moved FROM counts) AND job NOT IN (SELECT job FROM made))", "WHERE false)"),
    )


def run_alone() -> str:
    """The fire's second half: the run of a cursor that has moved."""
    text = sql.cursor.FIRE.text
    begin, end = text.index("    UPDATE cursors c\n"), text.index("    RETURNING c.job, c.last_tick AS tick")
    columns, rest = text[end:].removeprefix("    RETURNING ").split("),\noccupied", 1)
    halved = (
        f"{text[:begin]}    SELECT {columns} FROM cursors c"
        " WHERE c.job = ANY ($4::bigint[]) AND EXISTS (SELECT FROM fence)"
        f" AND c.last_tick = coalesce($5::timestamptz, ($6::timestamptz[])[1]) AND {UNUSED}),\noccupied{rest}"
    )
    assert "UPDATE" not in halved
    assert "INSERT INTO live_runs" in halved
    return halved


SPLIT = replace(
    scenarios.FIRE_SETTLE_AND_TAKE_OVER,
    actors=(
        ("fire", scripts.fires_in_two_transactions(OLD)),
        ("take-over", scripts.takes_over(NEW, OLD, held_open=False)),
    ),
)

MUTANTS = (
    Mutant(
        "the fire without the node fence", scenarios.FIRE_AND_TAKE_OVER, {"cursor/fire": without_fence("cursor/fire")}
    ),
    Mutant("the claim without the node fence", scenarios.CLAIM_AND_RESCUE, {"run/claim": without_fence("run/claim")}),
    Mutant(
        "the claim of an offer without the node fence",
        scenarios.OFFER_AND_RESCUE,
        {"run/claim_offered": without_fence("run/claim_offered")},
    ),
    Mutant(
        "the compare-and-set without the generation",
        scenarios.FIRE_AND_EDIT,
        {
            "cursor/fire": changed(
                "cursor/fire",
                (
                    "c.generation = coalesce($7::integer, ($8::integer[])[width_bucket(c.job, $4::bigint[])])",
                    GENERATION,
                ),
            )
        },
    ),
    Mutant(
        "cursor and run in two transactions",
        SPLIT,
        {"fire: cursor": cursor_alone(), "fire: run": run_alone()},
        scenarios.FIRE_SETTLE_AND_TAKE_OVER,
    ),
    Mutant(
        "the settle without the token",
        scenarios.ZOMBIE_AND_ITS_SUCCESSOR,
        {"run/settle": changed("run/settle", ("AND r.token = coalesce($9::bigint", "AND 0 <> coalesce($9::bigint"))},
    ),
    Mutant(
        "the settle without the tick",
        scenarios.SETTLE_AGAIN_AND_NEXT_TICK,
        {"run/settle": changed("run/settle", ("AND r.scheduled_at = coalesce(", "AND now() > coalesce("))},
    ),
    Mutant(
        "the settle of lanes without the token",
        scenarios.ZOMBIES_AND_ONE_SUCCESSOR,
        {"run/settle_lanes": changed("run/settle_lanes", ("AND token = batch.token", "AND 0 <> batch.token"))},
    ),
    Mutant(
        "a run that is put off with its former token",
        scenarios.ZOMBIE_AND_ITS_SUCCESSOR_THAT_WAITED,
        {
            "run/put_off": changed("run/put_off", ("token = r.token + 1", "token = r.token")),
            "run/claim": changed("run/claim", ("token = greatest(r.token, $2::bigint << 22) + 1", "token = r.token")),
        },
    ),
    Mutant(
        "a heartbeat that revives an evicted node",
        scenarios.BEAT_AND_TAKE_OVER,
        {
            "node/heartbeat": changed(
                "node/heartbeat", ("UPDATE nodes SET", "UPDATE nodes SET evicted = false,"), ("AND NOT evicted ", "")
            )
        },
    ),
    Mutant(
        "a lease that ends by the node's own clock",
        scenarios.BEAT_AND_EVICTION,
        {"node/heartbeat": changed("node/heartbeat", ("= now() + ttl", "= now() + ttl + $2 * interval '1 second'"))},
    ),
    Mutant(
        "a release that does not check again whether the job was paused",
        scenarios.RELEASE_AND_PAUSE,
        {
            "catch_up/release": changed(
                "catch_up/release",
                (" AND c.generation = batch.generation", ""),
                ("\n            AND (c.next_tick IS NOT NULL OR c.ended OR c.task)", ""),
            )
        },
    ),
    Mutant(
        "a release without its compare-and-set",
        scenarios.RELEASE_AND_RELEASE,
        {
            "catch_up/release": changed(
                "catch_up/release", ("catchup = batch.catchup AND next_tick = batch.tick", "catchup = batch.catchup")
            )
        },
    ),
    Mutant(
        "a promotion that leaves behind what it promoted",
        scenarios.PROMOTE_AND_SETTLE,
        {
            "run/promote": changed(
                "run/promote", ("r.lane = f.lane AND r.job IN", "r.lane = f.lane AND false AND r.job IN")
            )
        },
    ),
    # Further rules whose absence the harness must notice.
    Mutant(
        "the fire with a node row that is not even read",
        scenarios.FIRE_AND_TAKE_OVER,
        {"cursor/fire": changed("cursor/fire", (f"SELECT node {FENCE}", "SELECT $1::bigint AS node"))},
    ),
    Mutant(
        "the settle without the owner",
        scenarios.ZOMBIE_AND_ITS_RETRY,
        {"run/settle": changed("run/settle", ("AND r.owner = $1", "AND $1::bigint <> 0"))},
    ),
    Mutant(
        "the settle of lanes without the owner",
        scenarios.ZOMBIES_AND_ONE_RETRY,
        {"run/settle_lanes": changed("run/settle_lanes", ("AND owner = $1", "AND $1::bigint <> 0"))},
    ),
    Mutant(
        "a claim that does not raise the token",
        scenarios.ZOMBIE_AND_ITS_RETRY,
        {
            "run/claim": changed(
                "run/claim", (", token = greatest(r.token, $2::bigint << 22) + 1", ", token = r.token + $2 * 0")
            )
        },
    ),
)
