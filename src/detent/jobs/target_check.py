"""At registration: a warning about URLs whose literal address or port the tenant may not call.

A warning, not a refusal: the allow list may be opened after the job is created. What holds is the check at the socket
(`targets/guard.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from detent.domain.job import JobSpec
from detent.domain.registration import PreparedJob
from detent.domain.target_access import AllowLists, TargetRules, registration_fault
from detent.store import Store
from detent.store.db import PoolName
from detent.targets.policies import ClusterPolicies

AT_A_TIME = 256


class TenantRules:
    """The rules of a tenant, for the jobs of one request."""

    def __init__(self, rules: TargetRules, tenant: str) -> None:
        self._rules = rules
        self._tenant = tenant

    def warn(self, job: PreparedJob) -> None:
        fault = registration_fault(self._rules, job.spec)
        if fault is not None:
            job.warnings.append(f"Calls will be refused: {fault.sentence(self._tenant)}")


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

    async def rules_for(self, tenant: int, specs: Iterable[object]) -> TenantRules:
        """The rules for these jobs. They are read again before a warning, so that what another node has just allowed
        causes none."""
        rules = await self._policies.rules_of(tenant)
        for position, spec in enumerate(specs):
            if position % AT_A_TIME == AT_A_TIME - 1:
                await asyncio.sleep(0)
            if isinstance(spec, JobSpec) and registration_fault(rules, spec) is not None:
                break
        else:
            return TenantRules(rules, "")
        return TenantRules(await self._policies.renewed(tenant), await self._reader.name_of(tenant))
