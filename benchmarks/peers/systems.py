"""Who is compared, with how much work each, and what is measured of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LOOP = "ticks of recurring jobs, all due: fire, hand over, no-op, settle, recorded"
FLOW = "jobs put into the queue while it is worked on: put in, claim, no-op, finish, recorded"
DRAIN = "jobs put into the queue beforehand, which is not counted: claim, no-op, finish, recorded"


@dataclass(frozen=True)
class System:
    """`jobs` is what makes a round of some seconds; a deeper backlog slows some peers, so the slow ones get less.

    `whole` says that a run's whole way is counted, as it is of detent: from being due, or being put in, to its record.
    Where it is not, the figure flatters the peer, and is given beside the other for that reason. `settings` are
    variables its adapter reads; without any it has the best settings we found.
    """

    name: str
    adapter: str
    jobs: int
    measured: str
    phase: str = "work"
    whole: bool = True
    workers: int = 1
    store: str = "postgres"
    settings: Mapping[str, str] = field(default_factory=dict)


DETENT = System("detent", "", 50_000, LOOP)

PEERS = (
    System("PgQueuer", "pgqueuer_adapter.py", 40_000, FLOW, phase="flow"),
    System("PgQueuer as it comes", "pgqueuer_adapter.py", 20_000, FLOW, phase="flow", settings={"PEER_BATCH": "10"}),
    System("PgQueuer, filled", "pgqueuer_adapter.py", 40_000, DRAIN, whole=False),
    System("PgQueuer, filled, 2 processes", "pgqueuer_adapter.py", 40_000, DRAIN, whole=False, workers=2),
    System("Procrastinate", "procrastinate_adapter.py", 2_000, FLOW, phase="flow"),
    System("Procrastinate, filled", "procrastinate_adapter.py", 2_000, DRAIN, whole=False),
    System("Procrastinate, filled, 2 processes", "procrastinate_adapter.py", 2_000, DRAIN, whole=False, workers=2),
    System(
        "APScheduler 3",
        "apscheduler_adapter.py",
        3_000,
        "recurring jobs of its SQLAlchemy job store, all due: load, no-op, move on; nothing is recorded",
    ),
    System(
        "pg-scheduler",
        "pg_scheduler_adapter.py",
        5_000,
        "one-off jobs put in beforehand, which is not counted: claim, no-op, mark as completed",
        whole=False,
    ),
    System(
        "Celery, filled",
        "celery_adapter.py",
        4_000,
        "messages in Redis beforehand, which is not counted: receive, no-op, result into Redis",
        whole=False,
        store="redis",
    ),
    System(
        "Celery + RedBeat",
        "redbeat_adapter.py",
        2_000,
        "recurring entries in Redis, all due: beat sends, receive, no-op, result into Redis",
        store="redis",
    ),
)
