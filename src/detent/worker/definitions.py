"""The definitions that the claimed runs were fired with: from memory, read ahead of time, or read after the claim.

They are cached by (job, revision), which never changes. Those of ticks that are due within seconds are read ahead:
when many ticks are due at once, the server is busy with the fire, and no run then has to wait for its definition."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from detent.domain.job import Definition
from detent.domain.payload_schema import read_payload_schema
from detent.domain.references import call_references, refers
from detent.domain.run import Claim, HeldRun
from detent.errors import DetentError, UsageError
from detent.runtime.arithmetic import compute
from detent.runtime.bisection import halve_until_alone
from detent.store import Store
from detent.store.db import PoolName
from detent.telemetry.log import logger

log = logger("worker")

# Enough for half a million that are alike, or a hundred thousand that are not.
MAX_BYTES = 200_000_000
AT_ONCE = 1000
AHEAD_AT_ONCE = 1_000
MAX_AHEAD = 500_000
Key = tuple[int, int]


async def with_own_payload(
    store: Store, claim: Claim, definition: Definition | None, *, pool: PoolName = PoolName.WORK
) -> Definition | None:
    """The definition as this run has it: an on-demand run may have its own payload, which its claim brings along. For a
    run that this node adopts, it is read."""
    if definition is None or not claim.key.manual:
        return definition
    payload = claim.payload
    if payload is None:
        payload = await store.live_runs.own_payload(claim.key, pool=pool)
    if not payload:
        return definition
    spec = msgspec.structs.replace(definition.spec, payload=msgspec.json.decode(payload))
    referring = definition.refers or refers(spec, payload)
    return definition._replace(spec=spec, refers=referring and any(True for _ in call_references(spec)))


async def payload_fault(claim: Claim, definition: Definition | None) -> str | None:
    """What the job's schema refuses in the payload of an on-demand run. Nodes check it when a run is enqueued; the SQL
    functions cannot, and a run that is driven again may be older than the schema."""
    if definition is None or definition.spec.payload_schema is None or not claim.key.manual:
        return None
    return await compute(_fault_of, definition.spec.payload_schema, definition.spec.payload)


def _fault_of(schema: Mapping[str, Any], payload: object) -> str | None:
    try:
        read_payload_schema(schema).check(payload)
    except UsageError as fault:
        return fault.message
    return None


class Definitions:
    """Those that were read last stay. (An order of use cost a run 0.4 of 10 µs, because each use changed it, and where
    very many are kept, each step is a miss of the processor's cache.)"""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[Key, Definition] = OrderedDict()
        self.bytes = 0

    def fill(self, some: Iterable[HeldRun]) -> list[HeldRun]:
        """Give these runs their definitions; returns those whose definition has to be read."""
        known, unknown = self._known, []
        for held in some:
            definition = held.definition = known.get((held.claim.job, held.claim.revision))
            if definition is None:
                unknown.append(held)
        return unknown

    async def read(self, wanted: Iterable[Key]) -> dict[Key, Definition]:
        """The wanted definitions, without those that no longer exist or that this version cannot read."""
        found: dict[Key, Definition] = {}
        for some in _in_parts(list(dict.fromkeys(wanted))):
            found |= await self._store.live_runs.definitions(some)
        self._keep(found)
        return found

    def unknown(self, jobs: Iterable[Key]) -> list[Key]:
        return [key for key in jobs if key not in self._known]

    def _keep(self, found: Mapping[Key, Definition]) -> None:
        for key, definition in found.items():
            if key not in self._known:
                self.bytes += definition.size
                self._known[key] = definition
        while self.bytes > MAX_BYTES and self._known:
            _, dropped = self._known.popitem(last=False)
            self.bytes -= dropped.size


class UnreadableError(Exception):
    """The definition of at least one run of a batch cannot be read."""


class DefinitionLoader:
    def __init__(
        self,
        store: Store,
        loaded: Callable[[Sequence[HeldRun]], None],
        failed: Callable[[Sequence[HeldRun]], Awaitable[None]],
    ) -> None:
        """`loaded`: these have their definition, or none exists. `failed`: it could not be read."""
        self._definitions = Definitions(store)
        self._loaded = loaded
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._ahead: asyncio.Task[None] | None = None
        self._wanted_soon: deque[Key] = deque(maxlen=MAX_AHEAD)

    def fill(self, some: Sequence[HeldRun]) -> list[HeldRun]:
        """Give these runs their definitions; returns those whose definition has to be read."""
        return self._definitions.fill(some)

    def load(self, unknown: Sequence[HeldRun]) -> None:
        if unknown:
            self._begin(self._load(unknown))

    def prefetch(self, jobs: Iterable[Key]) -> None:
        """Runs of these jobs are due within seconds."""
        self._wanted_soon.extend(self._definitions.unknown(jobs))
        if self._wanted_soon and (self._ahead is None or self._ahead.done()):
            self._ahead = self._begin(self._read_ahead())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self, unknown: Sequence[HeldRun]) -> None:
        """A definition that cannot be read would fail each time: halving isolates its run, which gets no definition."""
        await halve_until_alone(unknown, self._read, self._without_definition, (UnreadableError,))

    async def _read(self, unknown: Sequence[HeldRun]) -> None:
        try:
            found = await self._definitions.read((held.claim.job, held.claim.revision) for held in unknown)
        except DetentError as error:
            log.warning("runs could not be started", runs=len(unknown), error=str(error))
            await self._failed(unknown)
            return
        except Exception as error:
            log.exception("definitions cannot be read", runs=len(unknown))
            raise UnreadableError from error
        for held in unknown:
            held.definition = found.get((held.claim.job, held.claim.revision))
        self._loaded(unknown)

    async def _without_definition(self, held: HeldRun, _error: UnreadableError) -> None:
        self._loaded([held])

    async def _read_ahead(self) -> None:
        try:
            while self._wanted_soon:
                some = [self._wanted_soon.popleft() for _ in range(min(len(self._wanted_soon), AHEAD_AT_ONCE))]
                await self._definitions.read(self._definitions.unknown(some))
        except DetentError as error:
            self._wanted_soon.clear()
            log.info("definitions not read ahead", error=str(error))


def _in_parts(wanted: Sequence[Key]) -> Iterator[Sequence[Key]]:
    return (wanted[start : start + AT_ONCE] for start in range(0, len(wanted), AT_ONCE))
