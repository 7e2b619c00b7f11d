"""Time limits of a connection's statements and locks, in seconds, computed from the lease's time to live.

A node that is paused in a transaction blocks the successor that evicts it, until the server ends the transaction. So
every statement that can lock the node's own row is limited to less than half of the lease's time to live: when the
lease ends, the locks are released, and the take-over does not wait. A longer lease gives statements more time, up to a
limit: a fire that has not answered for ten seconds needs attention.

API requests lock no such row, and may be slow.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

STATEMENT_SHARE = 0.4
TRANSACTION_SHARE = 0.48
LONGEST_STATEMENT = 10.0
# Fires skip a row that another transaction has locked instead of waiting for it.
FIRE_LOCK = 0.1
SHORTEST_ANSWER = 1.0


class PoolName(StrEnum):
    """The pools of connections, by what they are for."""

    FIRE = "fire"  # fires of this node
    SETTLE = "settle"  # the ends of runs of this node
    WORK = "work"  # everything else that the node does by itself: windows, claims, retries, upkeep
    FAILOVER = "failover"  # evictions, take-overs, rescues
    OUTPUT = "output"  # lines and progress of the runs of this node, which may be late
    PULL = "pull"  # claims, heartbeats and reports of workers that pull over the API
    REQUEST = "request"  # requests of the API, the command line and the dashboard
    # Short statements that must commit apart from the request's transaction. They have their own connections, because
    # that transaction keeps one of REQUEST while it waits for them.
    SEPARATE = "separate"


class StatementLimits(NamedTuple):
    """The server's limits, and `answer`: how long the client waits for an answer. It is longer than the server's own
    limits; a statement that has not answered by then has an unknown outcome."""

    lock: float
    statement: float
    idle: float
    transaction: float | None
    answer: float
    by_key: bool = False
    """All statements name their rows by key. One plan, made once, suits them: it reads the indexes of the keys, and
    so rows are locked in the order of their keys."""

    def settings(self) -> dict[str, str]:
        """All but the limit of whole transactions, which servers before PostgreSQL 17 do not have."""
        return {
            **(BY_KEY if self.by_key else {}),
            "lock_timeout": milliseconds(self.lock),
            "statement_timeout": milliseconds(self.statement),
            "idle_in_transaction_session_timeout": milliseconds(self.idle),
        }


# A plan for these values would be made anew for each batch, and costs as much as a tenth of what it does; and where a
# vacuum saw few rows, it would be a scan of the table.
BY_KEY = {"plan_cache_mode": "force_generic_plan", "enable_bitmapscan": "off", "enable_seqscan": "off"}
REQUEST_LIMITS = StatementLimits(lock=5.0, statement=60.0, idle=2.0, transaction=None, answer=120.0)
# One short statement, while the transaction of a request waits for it.
SEPARATE_LIMITS = REQUEST_LIMITS._replace(lock=2.0, statement=10.0, answer=20.0)


def work_limits(ttl: float) -> StatementLimits:
    """The limits of everything that a node does without a request."""
    statement = min(STATEMENT_SHARE * ttl, LONGEST_STATEMENT)
    transaction = statement * TRANSACTION_SHARE / STATEMENT_SHARE
    return StatementLimits(statement, statement, statement, transaction, max(2 * statement, SHORTEST_ANSWER))


DEFAULT_TTL = 5.0
STANDARD = work_limits(DEFAULT_TTL)


def pool_limits(ttl: float) -> dict[PoolName, StatementLimits]:
    work = work_limits(ttl)
    fire = work._replace(lock=min(FIRE_LOCK, work.lock), by_key=True)
    return {
        PoolName.FIRE: fire,
        PoolName.SETTLE: work._replace(by_key=True),
        PoolName.WORK: work,
        PoolName.FAILOVER: work,
        PoolName.PULL: work,
        PoolName.OUTPUT: work,
        PoolName.REQUEST: REQUEST_LIMITS,
        PoolName.SEPARATE: SEPARATE_LIMITS,
    }


def beat_limits(seconds: float) -> StatementLimits:
    """The limits of the heartbeat, which has to end within `seconds`, including the time to connect."""
    return StatementLimits(seconds, seconds, seconds, None, seconds)


def milliseconds(seconds: float) -> str:
    return f"{max(round(seconds * 1000), 1)}ms"
