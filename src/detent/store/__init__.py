"""The only access to data: one module per noun, each verb runs a statement of `sql/` and maps its rows.

The store is not a plug-in: there is one, PostgreSQL, and correctness rests on its transactions. The store applies no
policy and reads no clock but the database's; what decides is in `domain`, what orchestrates is in `jobs` and `cluster`.
"""

from __future__ import annotations

from detent.store.alert_rules import AlertRuleStore
from detent.store.alerts import AlertStore
from detent.store.audit_log import AuditLogStore
from detent.store.callback_keys import CallbackKeyStore
from detent.store.catchups import CatchUpStore
from detent.store.cluster import ClusterStore
from detent.store.cursors import CursorStore
from detent.store.db import Database
from detent.store.dead_letter_topics import DeadLetterTopicStore
from detent.store.dead_letters import DeadLetterStore
from detent.store.effect_ledger import EffectLedgerStore
from detent.store.enqueue_grants import EnqueueGrantStore
from detent.store.expectations import ExpectationStore
from detent.store.explanations import ExplanationStore
from detent.store.jobs import JobStore
from detent.store.keys import KeyStore
from detent.store.ledger import LedgerStore
from detent.store.leftovers import LeftoverStore
from detent.store.live_runs import LiveRunStore
from detent.store.nodes import NodeStore
from detent.store.offers import OfferStore
from detent.store.output import OutputStore
from detent.store.overview import OverviewStore
from detent.store.person_sessions import PersonSessionStore
from detent.store.pull import PullStore
from detent.store.queues import QueueStore
from detent.store.request_budgets import RequestBudgetStore
from detent.store.requests import RequestStore
from detent.store.reruns import RerunStore
from detent.store.retention import RetentionStore
from detent.store.revisions import RevisionStore
from detent.store.role_bindings import RoleBindingStore
from detent.store.runs import RunStore
from detent.store.secrets import SecretStore
from detent.store.set_aside import SetAsideStore
from detent.store.signals import SignalStore
from detent.store.skips import SkipStore
from detent.store.tallies import TallyStore
from detent.store.tasks import TaskStore
from detent.store.tenant_deletions import TenantDeletionStore
from detent.store.tenant_exports import TenantExportStore
from detent.store.tenant_lifecycle import TenantLifecycleStore
from detent.store.tenants import TenantStore
from detent.store.upkeep import UpkeepStore
from detent.store.web_sessions import WebSessionStore
from detent.store.zone_data import ZoneDataStore


class Store:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.alert_rules = AlertRuleStore(database)
        self.alerts = AlertStore(database)
        self.audit_log = AuditLogStore(database)
        self.callback_keys = CallbackKeyStore(database)
        self.catchups = CatchUpStore(database)
        self.cluster = ClusterStore(database)
        self.cursors = CursorStore(database)
        self.dead_letter_topics = DeadLetterTopicStore(database)
        self.dead_letters = DeadLetterStore(database)
        self.effect_ledger = EffectLedgerStore(database)
        self.enqueue_grants = EnqueueGrantStore(database)
        self.expectations = ExpectationStore(database)
        self.explanations = ExplanationStore(database)
        self.jobs = JobStore(database)
        self.keys = KeyStore(database)
        self.ledger = LedgerStore(database)
        self.leftovers = LeftoverStore(database)
        self.live_runs = LiveRunStore(database)
        self.nodes = NodeStore(database)
        self.offers = OfferStore(database)
        self.output = OutputStore(database)
        self.overview = OverviewStore(database)
        self.person_sessions = PersonSessionStore(database)
        self.pull = PullStore(database)
        self.queues = QueueStore(database)
        self.request_budgets = RequestBudgetStore(database)
        self.requests = RequestStore(database)
        self.reruns = RerunStore(database)
        self.retention = RetentionStore(database)
        self.revisions = RevisionStore(database)
        self.role_bindings = RoleBindingStore(database)
        self.runs = RunStore(database)
        self.secrets = SecretStore(database)
        self.set_aside = SetAsideStore(database)
        self.signals = SignalStore(database)
        self.skips = SkipStore(database)
        self.tallies = TallyStore(database)
        self.tasks = TaskStore(database, self.live_runs)
        self.tenant_deletions = TenantDeletionStore(database)
        self.tenant_exports = TenantExportStore(database)
        self.tenant_lifecycle = TenantLifecycleStore(database)
        self.tenants = TenantStore(database)
        self.upkeep = UpkeepStore(database)
        self.web_sessions = WebSessionStore(database)
        self.zone_data = ZoneDataStore(database)


__all__ = ["Database", "Store"]
