"""What a test does with rules: create them, let events happen in the tables, pass time, and make passes."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from detent.cluster.membership import Membership
from detent.contract.alert_rule import AlertRule
from detent.domain.alert_rule import AlertRuleSpec
from detent.domain.alerts import LEAST_SPACING
from detent.jobs.alert_rules import AlertRuleCommands
from detent.jobs.secrets import SecretCommands
from detent.runtime.envelope import MasterKeys
from detent.store import Store
from detent.targets.messenger import Messenger
from detent.telemetry.metrics import Metrics
from detent.upkeep.alerts import AlertWatch
from detent.upkeep.notices import Address, NoticeSender
from detent.worker.secrets import SecretValues
from tests.support.factories import add_job

DEAD = (
    "INSERT INTO run_history (job, scheduled_at, token, node, finished_at, serial, revision, attempt, status, reason)"
    " SELECT $1, $4::timestamptz - s * interval '1 ms', 1, 1, clock_timestamp(), 0, 1, 1, 2, 'exhausted'"
    " FROM generate_series($2::integer, $3::integer) s"
)
SUCCEEDED = (
    "INSERT INTO run_history (job, scheduled_at, token, node, finished_at, serial, revision, attempt, status)"
    " VALUES ($1, clock_timestamp(), 1, 1, clock_timestamp() + interval '1 ms', 0, 1, 1, 1)"
)


SPACED = (
    "UPDATE alerts a SET flush_at = flush_at - $1::interval, last_message_at = last_message_at - $1::interval"
    " FROM alert_rules r WHERE r.rule = a.rule AND (r.definition->>'group_seconds')::float = 0"
)


class AlertDesk:
    def __init__(self, store: Store, sql: Any, keys: MasterKeys, messenger: Messenger, secrets: SecretValues) -> None:
        self.store = store
        self.sql = sql
        self.metrics = Metrics()
        self._secrets = SecretCommands(store, keys)
        member = cast("Membership", SimpleNamespace(trusted=True))
        self.watch = AlertWatch(store, member, lambda: [0], lambda: None)
        self.sender = NoticeSender(store, member, messenger, Address(None, "webhook", []), secrets, self.metrics)
        self._runs = 0
        self._begun: datetime | None = None

    async def rule(self, name: str = "ops", tenant: int = 1, **fields: Any) -> AlertRule:
        spec = msgspec.convert({"name": name, "events": ["dead"], "group_seconds": 0, **fields}, AlertRuleSpec)
        return await AlertRuleCommands(self.store).create(spec, tenant=tenant, by="a test")

    async def secret(self, name: str, value: str, tenant: int = 1) -> dict[str, str]:
        await self._secrets.set(tenant, name, value)
        return {"secret": name}

    async def job(self, name: str, tags: tuple[str, ...] = (), tenant: int = 1) -> int:
        job = await add_job(self.sql, name=name)
        await self.sql.execute("UPDATE jobs SET tags = $2, tenant = $3 WHERE job = $1", job, list(tags), tenant)
        return job

    async def dies(self, job: int, runs: int = 1) -> None:
        """So many runs of the job die in one transaction. Their ticks count from one moment: none comes twice."""
        self._begun = self._begun or await self.sql.fetchval("SELECT now()")
        await self.sql.execute(DEAD, job, self._runs + 1, self._runs + runs, self._begun)
        self._runs += runs

    async def succeeds(self, job: int) -> None:
        await self.sql.execute(SUCCEEDED, job)

    async def look(self) -> None:
        """One pass of the watch: events become alerts and messages. Where the rule does not group, its alerts have
        waited for the least time between two messages."""
        await self.sql.execute(SPACED, LEAST_SPACING)
        await self.sql.execute("UPDATE alert_jobs SET check_at = now()")
        await self.watch.tick()

    async def passed(self) -> None:
        """A pass, and everything that is due is sent."""
        await self.look()
        await self.sender.tick()

    async def let_pass(self, span: timedelta) -> None:
        """So much time passes for alerts and messages."""
        await self.sql.execute(
            "UPDATE alerts SET flush_at = flush_at - $1::interval, last_message_at = last_message_at - $1::interval",
            span,
        )
        await self.sql.execute("UPDATE notices SET due_at = due_at - $1::interval", span)
