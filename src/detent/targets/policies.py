"""The rules of every tenant, as the database has them, in each process that calls addresses.

They are read when a call needs them and the last reading is too old, once for all tenants: in the background while it
is younger than `VALID_SECONDS`, so that a busy worker never waits for it. So every process of the cluster obeys a
change within that time, whatever it was started with. While the database does not answer, nothing can be changed in it
either: calls go on under the last rules for `LAST_KNOWN_SECONDS`; then private addresses are refused until it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from detent.domain.target_access import NOTHING_READ, AllowLists, TargetFault, TargetRules, rules_of
from detent.domain.target_patterns import PatternError, TargetPattern, read_pattern
from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.runtime.service import shared_task
from detent.telemetry.log import logger

log = logger("targets")

FRESH_SECONDS = 1.0
VALID_SECONDS = 2.0
# A call waits this long for a reading at most, while the last rules may still be used.
PATIENCE_SECONDS = 0.5
LAST_KNOWN_SECONDS = 60.0


class AllowListReader(Protocol):
    """What the store offers."""

    async def allow_lists(self) -> AllowLists: ...

    async def name_of(self, tenant: int) -> str: ...


class TargetPolicies(Protocol):
    async def rules_of(self, tenant: int) -> TargetRules: ...

    async def renewed(self, tenant: int) -> TargetRules:
        """The rules as they are now: before a refusal, so that what was just allowed is called."""
        ...

    async def sentence(self, fault: TargetFault, tenant: int) -> str: ...


class FixedPolicy:
    """The same rules for everyone: for measurements and tests."""

    def __init__(self, rules: TargetRules) -> None:
        self.rules = rules

    async def rules_of(self, tenant: int) -> TargetRules:
        return self.rules

    renewed = rules_of

    async def sentence(self, fault: TargetFault, tenant: int) -> str:
        return fault.sentence("default")


class ClusterPolicies:
    def __init__(self, reader: AllowListReader, now: Callable[[], float] = monotonic) -> None:
        self._reader = reader
        self._now = now
        self._read_at = -LAST_KNOWN_SECONDS
        self._lists: AllowLists | None = None
        self._rules: dict[int, TargetRules] = {}
        self._names: dict[int, str] = {}
        self._reading: asyncio.Task[None] | None = None

    async def rules_of(self, tenant: int) -> TargetRules:
        age = self._now() - self._read_at
        if age >= FRESH_SECONDS:
            reading = self._start_reading()
            if self._lists is None or age >= LAST_KNOWN_SECONDS:
                await asyncio.shield(reading)
            elif age >= VALID_SECONDS:
                await asyncio.wait([reading], timeout=PATIENCE_SECONDS)
        return self._known(tenant)

    async def renewed(self, tenant: int) -> TargetRules:
        if self._reading is not None:  # it may have begun before the change
            await asyncio.shield(self._reading)
        await asyncio.shield(self._start_reading())
        return self._known(tenant)

    async def sentence(self, fault: TargetFault, tenant: int) -> str:
        if fault.pattern is not None and tenant not in self._names:
            try:
                self._names[tenant] = await self._reader.name_of(tenant)
            except DetentError:
                return fault.sentence("NAME")
        return fault.sentence(self._names.get(tenant, ""))

    def _known(self, tenant: int) -> TargetRules:
        rules = self._rules.get(tenant)
        if rules is None:
            rules = NOTHING_READ if self._lists is None else rules_of(self._lists, tenant, ())
        return rules

    def _start_reading(self) -> asyncio.Task[None]:
        """One reading for all calls that need it; a call that is cancelled does not cancel it for the others."""
        if self._reading is None:
            self._reading = shared_task(self._read(), "allow lists")
            self._reading.add_done_callback(self._reading_ended)
        return self._reading

    def _reading_ended(self, task: asyncio.Task[None]) -> None:
        self._reading = None

    async def _read(self) -> None:
        began = self._now()
        try:
            lists = await self._reader.allow_lists()
        except DetentError as error:
            if self._now() - self._read_at >= LAST_KNOWN_SECONDS:
                log.warning("allow lists not read: private addresses are refused meanwhile", error=str(error))
                self._lists, self._rules = None, {}
            return
        if lists != self._lists:  # else the rules stay the same objects, and so do their sessions
            self._rules = {
                tenant: rules_of(lists, tenant, _read_patterns(tenant, texts))
                for tenant, texts in lists.patterns.items()
            }
            self._lists = lists
        self._read_at = began


def _read_patterns(tenant: int, texts: Sequence[str]) -> list[TargetPattern]:
    patterns = []
    for text in texts:
        try:
            patterns.append(read_pattern(text))
        except PatternError as error:  # written by a newer version: it opens nothing here
            log.warning("a pattern of an allow list is not understood", tenant=tenant, pattern=text, error=str(error))
    return patterns
