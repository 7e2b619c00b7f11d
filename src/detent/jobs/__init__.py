"""Use cases on jobs and runs: what clients, operators and nodes do with them.

A use case validates, decides and computes ticks; the store runs the statements. Each part below is one noun.
"""

from __future__ import annotations

from detent.domain.documents import MAX_PAYLOAD_BYTES
from detent.jobs.audit import LedgerAudit
from detent.jobs.automatic import AutomaticChanges
from detent.jobs.backfills import Backfills
from detent.jobs.batches import JobBatches
from detent.jobs.bulk import BulkChanges
from detent.jobs.dead_letters import DeadLetters
from detent.jobs.enqueue import RunEnqueuing
from detent.jobs.explain import TickExplainer
from detent.jobs.lifecycle import JobLifecycle
from detent.jobs.register import JobRegistration
from detent.jobs.revisions import JobRevisions
from detent.jobs.runs import RunCommands
from detent.jobs.serving import ServingCheck
from detent.jobs.target_check import TargetCheck
from detent.jobs.zone_data import ZoneDataRenewal
from detent.store import Store


class JobOperations:
    def __init__(self, store: Store, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        targets = TargetCheck(store)
        self.registration = JobRegistration(store, targets, max_payload_bytes)
        self.batches = JobBatches(store, targets, max_payload_bytes)
        self.lifecycle = JobLifecycle(store, max_payload_bytes)
        self.automatic = AutomaticChanges(store, self.lifecycle)
        self.bulk = BulkChanges(store, self.lifecycle)
        self.revisions = JobRevisions(store, self.registration)
        self.backfills = Backfills(store)
        self.runs = RunCommands(store)
        self.enqueuing = RunEnqueuing(store, max_payload_bytes)
        self.dead_letters = DeadLetters(store)
        self.audit = LedgerAudit(store)
        self.explainer = TickExplainer(store)
        self.serving = ServingCheck(store)
        self.zone_data = ZoneDataRenewal(store)


__all__ = ["JobOperations"]
