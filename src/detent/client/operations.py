"""Every verb of the clients, collected from the modules that describe them by noun.

A client is this list plus a way to send. Each verb has the same name and parameters in all of them.
"""

from __future__ import annotations

from detent.client.alert_rules import AlertRuleVerbs
from detent.client.audit_events import AuditEventVerbs
from detent.client.backfills import BackfillVerbs
from detent.client.bulk import BulkVerbs
from detent.client.cluster import ClusterVerbs
from detent.client.dead_letters import DeadLetterVerbs
from detent.client.incidents import IncidentVerbs
from detent.client.jobs import JobVerbs
from detent.client.keys import KeyVerbs
from detent.client.pull import PullVerbs
from detent.client.queues import QueueVerbs
from detent.client.revisions import RevisionVerbs
from detent.client.role_bindings import RoleBindingVerbs
from detent.client.runs import RunVerbs
from detent.client.secrets import SecretVerbs
from detent.client.tasks import TaskVerbs
from detent.client.tenants import TenantVerbs
from detent.client.ticks import TickVerbs


class Operations(
    JobVerbs,
    RevisionVerbs,
    TickVerbs,
    BackfillVerbs,
    BulkVerbs,
    RunVerbs,
    TaskVerbs,
    DeadLetterVerbs,
    IncidentVerbs,
    PullVerbs,
    QueueVerbs,
    ClusterVerbs,
    KeyVerbs,
    RoleBindingVerbs,
    TenantVerbs,
    SecretVerbs,
    AlertRuleVerbs,
    AuditEventVerbs,
):
    """All verbs of the REST API."""
