"""Every verb of the clients, collected from the modules that describe them by noun.

A client is this list plus a way to send. Each verb has the same name and parameters in all of them.
"""

from __future__ import annotations

from detent.client.backfills import BackfillOperations
from detent.client.bulk import BulkOperations
from detent.client.cluster import ClusterOperations
from detent.client.dead_letters import DeadLetterOperations
from detent.client.incidents import IncidentOperations
from detent.client.jobs import JobOperations
from detent.client.keys import KeyOperations
from detent.client.pull import PullOperations
from detent.client.queues import QueueOperations
from detent.client.revisions import RevisionOperations
from detent.client.runs import RunOperations
from detent.client.tenants import TenantOperations
from detent.client.ticks import TickOperations


class Operations(
    JobOperations,
    RevisionOperations,
    TickOperations,
    BackfillOperations,
    BulkOperations,
    RunOperations,
    DeadLetterOperations,
    IncidentOperations,
    PullOperations,
    QueueOperations,
    ClusterOperations,
    KeyOperations,
    TenantOperations,
):
    """All verbs of the REST API."""
