"""As `mutants`, for on-demand runs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import resources

from tests.interleavings import task_scenarios, task_scripts
from tests.interleavings.mutants import Mutant, changed, without_fence
from tests.interleavings.scenarios import Scenario
from tests.interleavings.task_rows import held, key
from tests.interleavings.world import NEW, OLD

SETTLE_OF_TASKS = ("task/settle", "task/settle_succeeded")
FUNCTION = "enqueue_runs"
SUBSTITUTE = "enqueue_runs_mutant"


@cache
def function_text() -> str:
    """The function that enqueues, as its migration creates it."""
    texts = [
        file.read_text("utf-8")
        for file in resources.files("detent.store.migrations").iterdir()
        if file.name.endswith(".sql")
    ]
    begin = f"CREATE FUNCTION {FUNCTION}("
    (text,) = [text for text in texts if begin in text]
    return text[text.index(begin) :].partition("\nEND $$;")[0] + "\nEND $$;"


def with_function(scenario: Scenario, before: str, after: str) -> Scenario:
    """The scenario with another function beside that of the product, in which one passage is replaced."""
    text = function_text()
    if text.count(before) != 1:
        raise AssertionError(f"{FUNCTION} no longer says {before!r} once: adapt the mutant to it")
    text = text.replace(before, after).replace(f"CREATE FUNCTION {FUNCTION}(", f"CREATE FUNCTION {SUBSTITUTE}(")
    drop = f"DROP FUNCTION IF EXISTS {SUBSTITUTE}(bigint, jsonb, boolean, bigint);"
    return replace(scenario, rows=f"{scenario.rows}{drop}{text}")


TASK_MUTANTS = (
    Mutant(
        "the claim from the backlog without the node fence",
        task_scenarios.CLAIM_AND_RESCUE,
        {"task/claim": without_fence("task/claim")},
    ),
    Mutant(
        "a unique key that forgets a holder which its snapshot cannot see",
        with_function(
            task_scenarios.TWO_ENQUEUES_AND_THE_HOLDER,
            "AND k.taken_by <> pg_current_xact_id() AND pg_visible_in_snapshot(k.taken_by, pg_current_snapshot())",
            "",
        ),
        {"task/enqueue": changed("task/enqueue", (f"{FUNCTION}(", f"{SUBSTITUTE}("))},
        task_scenarios.TWO_ENQUEUES_AND_THE_HOLDER,
    ),
    Mutant(
        "a unique key whose holder is only looked for in the backlog",
        with_function(
            task_scenarios.TWO_ENQUEUES_AND_THE_HOLDER,
            "SELECT FROM live_runs r WHERE r.job = k.job AND r.lane = k.serial AND r.scheduled_at = k.scheduled_at",
            "SELECT FROM live_runs r WHERE false",
        ),
        {"task/enqueue": changed("task/enqueue", (f"{FUNCTION}(", f"{SUBSTITUTE}("))},
        task_scenarios.TWO_ENQUEUES_AND_THE_HOLDER,
    ),
    Mutant(
        "a place of a concurrency key that forgets a holder which its snapshot cannot see",
        task_scenarios.KEYED_CLAIMS_AND_AN_END,
        {
            "task/claim_keyed": changed(
                "task/claim_keyed", ("WHERE pg_visible_in_snapshot(x.taken_by, pg_current_snapshot())", "WHERE true")
            )
        },
    ),
    Mutant(
        "a claim of runs that wait for a place which forgets a holder that its snapshot cannot see",
        task_scenarios.PARKED_CLAIMS_AND_AN_END,
        {
            "task/claim_parked": changed(
                "task/claim_parked", ("WHERE pg_visible_in_snapshot(x.taken_by, pg_current_snapshot())", "WHERE true")
            )
        },
    ),
    Mutant(
        "a claim of runs that wait for a place without the node fence",
        task_scenarios.PARKED_CLAIM_AND_RESCUE,
        {"task/claim_parked": without_fence("task/claim_parked")},
    ),
    Mutant(
        "an admission that forgets a holder which its snapshot cannot see",
        task_scenarios.ADMISSION_AND_CLAIM,
        {
            "run/admit": changed(
                "run/admit", ("WHERE pg_visible_in_snapshot(x.taken_by, pg_current_snapshot())", "WHERE true")
            )
        },
    ),
    Mutant(
        "a purge of places that does not check whether another run has taken one meanwhile",
        task_scenarios.KEYED_CLAIMS_AND_THE_PURGE,
        {
            "task/purge_key_places": changed(
                "task/purge_key_places",
                (
                    "(k.scope, k.key, k.place, k.taken_by) IN (SELECT scope, key, place, taken_by FROM over)",
                    "(k.scope, k.key, k.place) IN (SELECT scope, key, place FROM over)",
                ),
            )
        },
    ),
    Mutant(
        "a claim from the backlog that leaves the run there",
        task_scenarios.CLAIM_AND_CANCEL,
        {
            "task/claim": changed(
                "task/claim", ("DELETE FROM backlog b WHERE b.serial", "DELETE FROM backlog b WHERE false AND b.serial")
            )
        },
    ),
    Mutant(
        "a claim from the backlog that does not raise the token",
        task_scenarios.LATE_SETTLE_AND_RETRY,
        {
            "task/claim": changed(
                "task/claim",
                ("scheduled_at, greatest(token, $2::bigint << 22) + 1", "scheduled_at, token + $2::bigint * 0"),
                ("greatest(p.token, $2::bigint << 22) + 1 AS token", "p.token"),
            )
        },
    ),
    Mutant(
        "a release into lanes that does not expect another run there",
        task_scenarios.LANED_RELEASE_AND_FIRE,
        {"task/release_laned": changed("task/release_laned", ("ON CONFLICT (job, lane) DO NOTHING ", ""))},
    ),
    Mutant(
        "a release into lanes that loses runs whose lane was taken",
        task_scenarios.LANED_RELEASE_AND_FIRE,
        {
            "task/release_laned": changed(
                "task/release_laned",
                (
                    "b.serial = ANY (ARRAY(SELECT serial FROM taken))",
                    "b.serial = ANY (ARRAY(SELECT serial FROM placed))",
                ),
                ("(SELECT serial, scheduled_at, job FROM taken)", "(SELECT serial, scheduled_at, job FROM placed)"),
            )
        },
    ),
    Mutant(
        "a retry to the backlog without the token",
        task_scenarios.LATE_RETRY_AND_SUCCESSOR,
        {
            "task/settle_retry": changed(
                "task/settle_retry", ("AND token = batch.token AND owner = $1", "AND owner = $1")
            )
        },
    ),
    Mutant(
        "a retry to the backlog of a run that was cancelled",
        task_scenarios.RETRY_AND_CANCEL,
        {
            "task/settle_retry": changed(
                "task/settle_retry",
                ("FROM locked WHERE NOT cancel AND", "FROM locked WHERE"),
                ("FROM locked WHERE cancel AND", "FROM locked WHERE false AND"),
            )
        },
    ),
    Mutant(
        "a run that is put off into the backlog without the token",
        task_scenarios.LATE_PUT_OFF_AND_SUCCESSOR,
        {"task/put_off": changed("task/put_off", ("AND token = batch.token AND owner = $1", "AND owner = $1"))},
    ),
    Mutant(
        "a settle of a task without the token",
        task_scenarios.LATE_SETTLE_AND_RETRY,
        {name: changed(name, ("AND token = batch.token AND owner = $1", "AND owner = $1")) for name in SETTLE_OF_TASKS},
    ),
    Mutant(
        "a cancel that does not check whether the run still waits",
        replace(
            task_scenarios.CLAIM_AND_CANCEL,
            actors=(
                ("claim", task_scripts.takes(NEW)),
                ("cancel", task_scripts.cancels_once(key())),
            ),
        ),
        {
            "task/cancel": changed(
                "task/cancel",
                ("\n           FOR UPDATE)", ")"),
                ("IN (SELECT serial, scheduled_at, job FROM deleted)) IS TRUE", "IS NOT NULL)"),
            )
        },
    ),
    Mutant(
        "a cancel that looks once into the backlog and once into what is live",
        replace(
            task_scenarios.RETRY_AND_CANCEL,
            actors=(
                ("retry", task_scripts.fails_and_returns(OLD, held())),
                ("cancel", task_scripts.cancels_once(key())),
            ),
        ),
        {},
        task_scenarios.RETRY_AND_CANCEL,
    ),
)
