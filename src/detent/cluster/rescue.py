"""Nodes that are gone: evicting them, and freeing the runs they held.

The order matters: a node is evicted first, in a transaction of its own that waits for that node's statements. Only then
are its partitions taken, under a higher term, and its runs returned, with a higher token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from detent.domain.identity import node_name
from detent.errors import DetentError
from detent.runtime import failpoints
from detent.runtime.wakeups import Wakeups
from detent.store import Store
from detent.store.nodes import Rescued
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics

log = logger("rescue")


class Rescue:
    def __init__(self, store: Store, metrics: Metrics, wakeups: Wakeups, rescuer: int) -> None:
        """`rescuer` is the node that this is done by."""
        self._store = store
        self._metrics = metrics
        self._wakeups = wakeups
        self._rescuer = rescuer

    async def evict(self) -> None:
        for node in await self._store.nodes.evict_expired():
            self._metrics.evictions += 1
            log.warning("node evicted", node=node_name(node))

    async def clean_up(self, evicted: Iterable[int]) -> None:
        """Return the runs of each evicted node, also of nodes that another node evicted. A failure with one node does
        not stop the others."""
        for node in evicted:
            await failpoints.hit("R1")
            try:
                await self._rescue(node)
            except DetentError as error:
                log.warning("runs not rescued yet", node=node_name(node), error=str(error))

    def _log(self, batch: Sequence[Rescued], node: int) -> None:
        facts = [{**transitions.facts_of(run.claim, node), "dead": run.dead} for run in batch]
        transitions.log_some("warning", "run rescued: its node was lost", facts)

    async def _rescue(self, node: int) -> None:
        count = 0
        while batch := await self._store.nodes.rescue(node):
            count += len(batch)
            self._log(batch, node)
            if dead := {run.job for run in batch if run.dead}:
                self._wakeups.runs_died(dead)
        await failpoints.hit("R2")
        if count:
            self._metrics.rescued += count
            log.warning("runs rescued", node=node_name(node), count=count)
            await self._store.nodes.note_rescued(node, self._rescuer, count)
            await self._store.live_runs.promote()  # runs may have waited for those that ended
            self._wakeups.runs_queued()
        # Refused while a run of it is locked or its share is not taken: the next pass retries.
        await self._store.nodes.delete(node)
