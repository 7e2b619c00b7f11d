"""What the enqueuers ask for: tasks, each with its target and with how many of its runs may be called at once."""

from __future__ import annotations

from typing import Any, NamedTuple

TEMPLATE = "customer-{{payload.customer}}"
TENANT_SCOPE = "tenant"


class TaskKind(NamedTuple):
    """`share`: of all orders. `limit`: calls of one customer at once; None: any number. `scope`: tasks with one name
    here share the customers. `laned`: a job with a schedule, whose runs take turns with its ticks."""

    name: str
    mode: str
    share: float
    limit: int | None = None
    scope: str = ""
    given_key: bool = False
    unique: bool = False
    laned: bool = False

    def key(self, customer: str) -> str | None:
        """What may not be exceeded, or None; the names of its calls in the record lead to the same."""
        if self.limit is None:
            return None
        return f"{self.scope or self.name} {'' if self.laned else customer}"


KINDS = (
    TaskKind("mail", "ok", 0.48),
    TaskKind("unstable", "fail/1", 0.08),
    TaskKind("invoice", "slow/0.02", 0.15, unique=True),
    TaskKind("solo", "slow/0.02", 0.08, limit=1),
    TaskKind("pair", "slow/0.02", 0.08, limit=2),
    TaskKind("given", "slow/0.02", 0.04, limit=1, given_key=True),
    # Unique among those that wait, one at a time when they run.
    TaskKind("both", "slow/0.02", 0.04, limit=1, unique=True),
    TaskKind("east", "slow/0.02", 0.02, limit=1, scope=TENANT_SCOPE),
    TaskKind("west", "slow/0.02", 0.02, limit=1, scope=TENANT_SCOPE),
    TaskKind("report", "slow/0.02", 0.01, limit=1, laned=True),
)
BY_NAME = {kind.name: kind for kind in KINDS}
RETRIES = {"max_retries": 5, "retry_base_seconds": 0.05, "retry_max_seconds": 0.5}


def documents(target: str) -> list[dict[str, Any]]:
    """How they are registered."""
    return [_document(kind, target) for kind in KINDS]


def _document(kind: TaskKind, target: str) -> dict[str, Any]:
    document = {"name": kind.name, "target": {"type": "http", "url": f"{target}/{kind.mode}"}, **RETRIES}
    if kind.laned:
        document |= {"schedule": {"every": "1s"}, "payload": {"customer": ""}}
    elif kind.limit is not None and not kind.given_key:
        document |= {"concurrency_key": TEMPLATE, "concurrency_limit": kind.limit}
        document |= {"concurrency_scope": kind.scope} if kind.scope else {}
    return document
