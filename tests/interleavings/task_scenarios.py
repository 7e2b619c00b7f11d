"""On-demand runs: which actors run concurrently. The rules are checked after every step."""

from __future__ import annotations

from functools import partial

from tests.interleavings import scripts, task_scripts
from tests.interleavings.scenarios import Scenario
from tests.interleavings.task_rows import KEY, UNIQUE, dead, has_place, held, holds, in_lane, key, live, task, waiting
from tests.interleavings.world import NEW, OLD, cursor

TaskScenario = partial(Scenario, ticks={}, watched=True)

# Unique keys.
TWO_ENQUEUES_AND_THE_HOLDER = TaskScenario(
    "two enqueues of a unique key against the end of its holder",
    task() + waiting(unique=UNIQUE),
    (
        ("one", task_scripts.enqueues(UNIQUE)),
        ("two", task_scripts.enqueues(UNIQUE)),
        ("holder", task_scripts.takes(OLD, held_open=False)),
    ),
)
ENQUEUE_AND_THE_HOLDERS_RETRY = TaskScenario(
    "an enqueue of a unique key against a retry of its holder",
    task() + live(OLD, unique=UNIQUE),
    (
        ("enqueue", task_scripts.enqueues(UNIQUE)),
        ("holder", task_scripts.fails_and_returns(OLD, held())),
    ),
)
ENQUEUE_THAT_IS_ROLLED_BACK = TaskScenario(
    "two enqueues of a unique key of which one is rolled back, against a claim",
    task(),
    (
        ("withdrawn", task_scripts.enqueues(UNIQUE, rolls_back=True)),
        ("kept", task_scripts.enqueues(UNIQUE)),
        ("claim", task_scripts.takes(OLD)),
    ),
)
ENQUEUES_AT_REPEATABLE_READ = TaskScenario(
    "two enqueues of a unique key at REPEATABLE READ",
    task() + live(OLD, unique=UNIQUE),
    (
        ("one", task_scripts.enqueues(UNIQUE, isolation="REPEATABLE READ", looks_first=True)),
        ("two", task_scripts.enqueues(UNIQUE, isolation="REPEATABLE READ", looks_first=True)),
        ("holder", scripts.settles_at_once(OLD, held())),
    ),
)
ENQUEUES_AT_SERIALIZABLE = TaskScenario(
    "two enqueues of a unique key at SERIALIZABLE",
    task() + live(OLD, unique=UNIQUE),
    (
        ("one", task_scripts.enqueues(UNIQUE, isolation="SERIALIZABLE", looks_first=True)),
        ("two", task_scripts.enqueues(UNIQUE, isolation="SERIALIZABLE", looks_first=True)),
        ("holder", scripts.settles_at_once(OLD, held())),
    ),
)
ENQUEUES_AND_THE_PURGE = TaskScenario(
    "two enqueues of a unique key against the purge of its former holder",
    task() + holds(0, UNIQUE),
    (
        ("one", task_scripts.enqueues(UNIQUE)),
        ("two", task_scripts.enqueues(UNIQUE)),
        ("purge", task_scripts.purges("task/purge_unique_keys", 0, "", 10)),
    ),
)
# Claims.
ENQUEUE_CLAIM_AND_CANCEL = TaskScenario(
    "an enqueue against a claim and a cancel",
    task(),
    (
        ("enqueue", task_scripts.enqueues()),
        ("claim", task_scripts.takes(NEW)),
        ("cancel", task_scripts.cancels()),
    ),
)
CLAIM_AND_CANCEL = TaskScenario(
    "a claim from the backlog against a cancel",
    task() + waiting(),
    (("claim", task_scripts.takes(NEW)), ("cancel", task_scripts.cancels(key()))),
)
TWO_CLAIMS = TaskScenario(
    "two claims of the same backlog",
    task() + waiting(0) + waiting(1) + waiting(2),
    (("old", task_scripts.takes(OLD, limit=2)), ("new", task_scripts.takes(NEW, limit=2))),
)
CLAIM_AND_RESCUE = TaskScenario(
    "a claim from the backlog against eviction and rescue",
    task() + waiting(),
    (("claim", task_scripts.takes(OLD, settles=False)), ("take-over", scripts.takes_over(NEW, OLD))),
)
CLAIM_SETTLE_AND_RESCUE = TaskScenario(
    "a claim from the backlog and its settle against eviction and rescue",
    task() + waiting(),
    (
        ("claim", task_scripts.takes(OLD)),
        ("take-over", scripts.takes_over(NEW, OLD, held_open=False, tidy=False, claims=True)),
    ),
)
RELEASE_AND_CLAIM = TaskScenario(
    "a release against a direct claim",
    task() + waiting(0) + waiting(1),
    (("release", task_scripts.releases_from_backlog(OLD)), ("claim", task_scripts.takes(NEW, limit=1))),
)
# Retries.
RETRY_AND_CANCEL = TaskScenario(
    "a retry to the backlog against a cancel",
    task() + live(OLD),
    (("retry", task_scripts.fails_and_returns(OLD, held())), ("cancel", task_scripts.cancels(key()))),
)
RETRY_AND_RESCUE = TaskScenario(
    "a retry to the backlog against rescue",
    task() + live(OLD),
    (
        ("retry", task_scripts.fails_and_returns(OLD, held(), again=False)),
        ("take-over", scripts.takes_over(NEW, OLD, held_open=False, tidy=False, claims=True)),
    ),
)
LATE_RETRY_AND_SUCCESSOR = TaskScenario(
    "a late retry against the next claim of the same node",
    task() + live(NEW),
    (
        ("late", task_scripts.fails_late(NEW, held())),
        ("next", scripts.gives_back_and_claims_again(NEW, held())),
    ),
)
LATE_SETTLE_AND_RETRY = TaskScenario(
    "a late settle against a retry to the backlog and the next attempt on the same node",
    task() + live(NEW),
    (
        ("late", scripts.settles_late(NEW, held())),
        ("retry", task_scripts.fails_and_returns(NEW, held())),
    ),
)
# Runs that wait for their host.
PUT_OFF_AND_RESCUE = TaskScenario(
    "a run that is put off into the backlog against rescue",
    task() + live(OLD),
    (
        ("waits", task_scripts.puts_off_and_takes_again(OLD, held(), again=False)),
        ("take-over", scripts.takes_over(NEW, OLD, held_open=False, tidy=False, claims=True)),
    ),
)
LATE_PUT_OFF_AND_SUCCESSOR = TaskScenario(
    "a run that is put off late against its next claim by the same node",
    task() + live(NEW),
    (
        ("late", task_scripts.puts_off_late(NEW, held())),
        ("next", scripts.gives_back_and_claims_again(NEW, held())),
    ),
)
LATE_SETTLE_AND_PUT_OFF = TaskScenario(
    "a late settle against a run that is put off into the backlog and claimed again",
    task() + live(NEW),
    (
        ("late", scripts.settles_late(NEW, held())),
        ("waits", task_scripts.puts_off_and_takes_again(NEW, held())),
    ),
)
# Concurrency keys.
KEYED_CLAIMS_AND_AN_END = TaskScenario(
    "two claims of a concurrency key against the end of the run that has its place",
    task(limit=1) + live(OLD, concurrency=KEY) + waiting(1, concurrency=KEY) + waiting(2, concurrency=KEY),
    (
        ("end", scripts.settles(OLD, held(concurrency=KEY))),
        ("old", task_scripts.takes(OLD, keyed=True, settles=False, limit=1)),
        ("new", task_scripts.takes(NEW, keyed=True, settles=False, limit=1)),
    ),
)
KEYED_CLAIM_AND_A_RETRY = TaskScenario(
    "a claim of a concurrency key against a retry of the run that has its place",
    task(limit=1) + live(OLD, concurrency=KEY) + waiting(1, concurrency=KEY),
    (
        ("retry", task_scripts.fails_and_returns(OLD, held(concurrency=KEY), again=False)),
        ("old", task_scripts.takes(OLD, keyed=True, settles=False, held_open=False)),
        ("new", task_scripts.takes(NEW, keyed=True, settles=False)),
    ),
)
UNPARK_AND_CLAIM = TaskScenario(
    "runs that waited for a place are made ready by two nodes",
    task(limit=1)
    + waiting(1, concurrency=KEY)
    + waiting(2, concurrency=KEY)
    + "UPDATE backlog SET parked = true, paced = true;",
    (
        ("old", task_scripts.unparks_and_takes(OLD, KEY)),
        ("new", task_scripts.unparks_and_takes(NEW, KEY)),
    ),
)
PARKED_CLAIMS_AND_AN_END = TaskScenario(
    "two claims of runs that wait for a place against the end of the run that has it",
    task(limit=1)
    + waiting(1, concurrency=KEY)
    + waiting(2, concurrency=KEY)
    + "UPDATE backlog SET parked = true, paced = true;"
    + live(OLD, concurrency=KEY),
    (
        ("end", scripts.settles_at_once(OLD, held(concurrency=KEY))),
        ("old", task_scripts.takes_parked(OLD, KEY)),
        ("new", task_scripts.takes_parked(NEW, KEY)),
    ),
)
PARKED_CLAIM_AND_RESCUE = TaskScenario(
    "a claim of a run that waits for a place against eviction and rescue",
    task(limit=1) + waiting(concurrency=KEY) + "UPDATE backlog SET parked = true, paced = true;",
    (("claim", task_scripts.takes_parked(OLD, KEY)), ("take-over", scripts.takes_over(NEW, OLD))),
)
KEYED_RELEASE_AND_CLAIM = TaskScenario(
    "a release of a concurrency key against a direct claim",
    task(limit=1) + waiting(1, concurrency=KEY) + waiting(2, concurrency=KEY),
    (
        ("release", task_scripts.releases_from_backlog(OLD, keyed=True)),
        ("claim", task_scripts.takes(NEW, keyed=True, limit=1)),
    ),
)
KEYED_CLAIMS_AND_THE_PURGE = TaskScenario(
    "two claims of a concurrency key against the purge of its former run",
    task(limit=1) + has_place(0, KEY) + waiting(1, concurrency=KEY) + waiting(2, concurrency=KEY),
    (
        ("old", task_scripts.takes(OLD, keyed=True, settles=False, limit=1)),
        ("new", task_scripts.takes(NEW, keyed=True, settles=False, limit=1)),
        ("purge", task_scripts.purges("task/purge_key_places", 0, "", 0, 10)),
    ),
)
ADMISSIONS_AND_AN_END = TaskScenario(
    "two admissions of runs in lanes against the end of the run that has the place of their key",
    cursor(lanes=3)
    + "UPDATE cursors SET key_limit = 1;"
    + in_lane(0, owner=OLD)
    + has_place(0, KEY, lane=0)
    + in_lane(1)
    + in_lane(2),
    (
        ("end", scripts.settles_at_once(OLD, held(lane=0, concurrency=KEY))),
        ("old", task_scripts.admits()),
        ("new", task_scripts.admits()),
    ),
)
ADMISSION_AND_CLAIM = TaskScenario(
    "an admission of a run in a lane against a claim of a task that shares its key",
    task(limit=1)
    + waiting(concurrency=KEY)
    + cursor(2)
    + in_lane(1, job=2)
    + "UPDATE cursors SET key_limit = 1, key_shared = true;",
    (
        ("admit", task_scripts.admits(job=2)),
        ("claim", task_scripts.takes(NEW, keyed=True, settles=False)),
    ),
)
# Ends.
DELETE_ENQUEUE_AND_CLAIM = TaskScenario(
    "the deletion of a task against an enqueue and a claim",
    task() + waiting(),
    (
        ("delete", task_scripts.deletes()),
        ("enqueue", task_scripts.enqueues()),
        ("claim", task_scripts.takes(NEW, held_open=False)),
    ),
)
DELETE_AND_RETRY = TaskScenario(
    "the deletion of a task against a retry",
    task() + live(NEW),
    (
        ("delete", task_scripts.deletes()),
        ("retry", task_scripts.fails_and_returns(NEW, held())),
    ),
)
DELETE_AND_RELEASE = TaskScenario(
    "the deletion of a task against a release",
    task() + waiting(),
    (("delete", task_scripts.deletes()), ("release", task_scripts.releases_from_backlog(NEW))),
)
REDRIVE_AND_CANCEL = TaskScenario(
    "a redrive against a cancel",
    task() + dead(),
    (
        ("redrive", task_scripts.redrives([key()])),
        ("cancel", task_scripts.cancels(key(), redriven=True)),
    ),
)
REDRIVE_CANCEL_AND_CLAIM = TaskScenario(
    "a redrive against a cancel and a claim",
    task() + dead(),
    (
        ("redrive", task_scripts.redrives([key()])),
        ("cancel", task_scripts.cancels(key(), redriven=True)),
        ("claim", task_scripts.takes(NEW, held_open=False)),
    ),
)
TWO_REDRIVES = TaskScenario(
    "two redrives of the same run",
    task() + dead(),
    (("one", task_scripts.redrives([key()])), ("two", task_scripts.redrives([key()]))),
)
# Jobs with a schedule: their on-demand runs take lanes of their job.
LANED_RELEASE_AND_FIRE = TaskScenario(
    "an on-demand run that waits for its lane against a fire on SKIP",
    cursor() + waiting(),
    (("fire", scripts.fires(OLD, settles=True)), ("release", task_scripts.releases_laned(NEW))),
    ticks={1: (0, 1)},
)
TWO_LANED_RELEASES = TaskScenario(
    "two nodes that release on-demand runs of one job on QUEUE",
    cursor(lanes=-1) + waiting(0) + waiting(1) + waiting(2),
    (("old", task_scripts.releases_laned(OLD)), ("new", task_scripts.releases_laned(NEW))),
    ticks={1: (0, 1)},
)
TRIGGER_FIRE_AND_RELEASE = TaskScenario(
    "a trigger against a fire and a release of the same job on SKIP",
    cursor(),
    (
        ("trigger", task_scripts.triggers()),
        ("fire", scripts.fires(OLD)),
        ("release", task_scripts.releases_laned(NEW)),
    ),
    ticks={1: (0, 1)},
)

SMALL = (
    TWO_ENQUEUES_AND_THE_HOLDER,
    ENQUEUE_AND_THE_HOLDERS_RETRY,
    ENQUEUE_THAT_IS_ROLLED_BACK,
    ENQUEUES_AT_REPEATABLE_READ,
    ENQUEUES_AND_THE_PURGE,
    CLAIM_AND_CANCEL,
    TWO_CLAIMS,
    CLAIM_AND_RESCUE,
    CLAIM_SETTLE_AND_RESCUE,
    RELEASE_AND_CLAIM,
    RETRY_AND_CANCEL,
    RETRY_AND_RESCUE,
    LATE_RETRY_AND_SUCCESSOR,
    LATE_SETTLE_AND_RETRY,
    PUT_OFF_AND_RESCUE,
    LATE_PUT_OFF_AND_SUCCESSOR,
    LATE_SETTLE_AND_PUT_OFF,
    KEYED_CLAIMS_AND_AN_END,
    KEYED_CLAIM_AND_A_RETRY,
    UNPARK_AND_CLAIM,
    PARKED_CLAIMS_AND_AN_END,
    PARKED_CLAIM_AND_RESCUE,
    KEYED_RELEASE_AND_CLAIM,
    KEYED_CLAIMS_AND_THE_PURGE,
    ADMISSIONS_AND_AN_END,
    ADMISSION_AND_CLAIM,
    DELETE_ENQUEUE_AND_CLAIM,
    DELETE_AND_RETRY,
    DELETE_AND_RELEASE,
    REDRIVE_AND_CANCEL,
    TWO_REDRIVES,
    LANED_RELEASE_AND_FIRE,
    TWO_LANED_RELEASES,
)
LARGE = (REDRIVE_CANCEL_AND_CLAIM, ENQUEUE_CLAIM_AND_CANCEL, ENQUEUES_AT_SERIALIZABLE, TRIGGER_FIRE_AND_RELEASE)
