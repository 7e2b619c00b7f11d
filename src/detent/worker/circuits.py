"""Reports the open circuits of this node's worker into its row, where `detent doctor` and explanations read them.

A node without open circuits writes nothing. With some, it writes when one opened, closed or was probed, at most every
`REPORT_EVERY` seconds; a report that fails is repeated.
"""

from __future__ import annotations

from detent.cluster.membership import Membership
from detent.domain.documents import encode_json
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.store import Store
from detent.targets.breaker import HostBreakers

REPORT_EVERY = 3.0
# The row of a node is read often and written with every heartbeat: it stays small.
MOST_REPORTED = 20


class CircuitReport:
    def __init__(self, store: Store, membership: Membership, breakers: HostBreakers) -> None:
        self._store = store
        self._membership = membership
        self._breakers = breakers
        self._written = 0
        self.loop = Loop("circuits", self.tick)

    async def tick(self) -> float:
        self._breakers.forget_unused()
        version = self._breakers.version
        if version != self._written and self._membership.trusted:
            await self._store.nodes.report_circuits(self._membership.node, self._document())
            self._written = version
        return REPORT_EVERY

    def _document(self) -> str | None:
        """Those that have been open for the longest time."""
        now = monotonic()
        circuits = sorted(self._breakers.open_circuits(), key=lambda circuit: circuit.opened_at)
        described = [
            {
                "tenant": each.key.tenant,
                "host": each.key.host,
                "port": each.key.port,
                "opened": each.opened_at - now,
                "next_probe": each.next_probe - now,
                "put_off": each.put_off,
                "error": each.error[:300],
            }
            for each in circuits[:MOST_REPORTED]
        ]
        return encode_json(described) if described else None
