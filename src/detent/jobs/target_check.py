"""At registration: a warning about URLs whose literal address or port the tenant may not call, and about brokers that
cannot be reached now.

A warning, not a refusal: the allow list may be opened after the job is created, and a broker may be started. What holds
is the check at the socket (`targets/guard.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from detent.domain.job import JobSpec
from detent.domain.registration import PreparedJob
from detent.domain.target_access import AllowLists, TargetRules, broker_urls, registration_fault
from detent.store import Store
from detent.store.db import PoolName
from detent.targets.policies import ClusterPolicies

if TYPE_CHECKING:
    from detent.jobs.broker_check import BrokerCheck

AT_A_TIME = 256
# Of one request, so that it is not delayed.
MOST_BROKERS = 5


class TenantRules:
    """The rules of a tenant, for the jobs of one request."""

    def __init__(self, rules: TargetRules, tenant: str, away: Mapping[str, str] = {}) -> None:
        """`away`: why brokers could not be reached, by their URL."""
        self._rules = rules
        self._tenant = tenant
        self._away = away

    def warn(self, job: PreparedJob) -> None:
        fault = registration_fault(self._rules, job.spec)
        if fault is not None:
            job.warnings.append(f"Calls will be refused: {fault.sentence(self._tenant)}")
        if self._away:
            job.warnings.extend(self._away[url] for url in broker_urls(job.spec) if url in self._away)


class _RequestReader:
    """Reads for requests: with connections of theirs, and outside a transaction that other requests do not see."""

    def __init__(self, store: Store) -> None:
        self._tenants = store.tenants

    async def allow_lists(self) -> AllowLists:
        return await self._tenants.allow_lists(pool=PoolName.SEPARATE)

    async def name_of(self, tenant: int) -> str:
        return await self._tenants.name_of(tenant, pool=PoolName.SEPARATE)


class TargetCheck:
    def __init__(self, store: Store) -> None:
        self._reader = _RequestReader(store)
        self._policies = ClusterPolicies(self._reader)
        self._brokers: BrokerCheck | None = None

    async def rules_for(self, tenant: int, specs: Iterable[object]) -> TenantRules:
        """The rules for these jobs. They are read again before a warning, so that what another node has just allowed
        causes none."""
        rules, name = await self._policies.rules_of(tenant), ""
        brokers: dict[str, None] = {}
        for position, spec in enumerate(specs):
            if position % AT_A_TIME == AT_A_TIME - 1:
                await asyncio.sleep(0)
            if not isinstance(spec, JobSpec):
                continue
            if len(brokers) < MOST_BROKERS:
                brokers.update(dict.fromkeys(broker_urls(spec)))
            if not name and registration_fault(rules, spec) is not None:
                rules, name = await self._policies.renewed(tenant), await self._reader.name_of(tenant)
        return TenantRules(rules, name, await self._away(tenant, rules, brokers) if brokers else {})

    async def _away(self, tenant: int, rules: TargetRules, urls: Iterable[str]) -> dict[str, str]:
        if self._brokers is None:
            from detent.jobs.broker_check import BrokerCheck  # few processes need what it loads

            self._brokers = BrokerCheck()
        return await self._brokers.away(tenant, rules, urls)
