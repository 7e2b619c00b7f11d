"""Jobs as the runs in hand were fired with, remembered by (job, revision), which never changes.

Those of ticks that are due within seconds are read ahead: when a herd's instant comes, nobody waits for them, and the
server has other things to do then."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from detent.domain.job import Definition
from detent.domain.run import Claim
from detent.store import Store
from detent.store.db import PoolName

# Room for half a million that are alike, or a hundred thousand that are not.
MOST_BYTES = 200_000_000
AT_ONCE = 1000
Key = tuple[int, int]


async def with_own_payload(
    store: Store, claim: Claim, definition: Definition | None, *, pool: PoolName = PoolName.WORK
) -> Definition | None:
    """The definition as this run has it: one that was triggered by hand may have brought a payload, and its retries and
    repeats have the same."""
    if definition is None or not claim.key.manual:
        return definition
    payload = await store.live.own_payload(claim.key, pool=pool)
    if payload is None:
        return definition
    return definition._replace(spec=msgspec.structs.replace(definition.spec, payload=msgspec.json.decode(payload)))


class Definitions:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[Key, Definition] = OrderedDict()
        self.bytes = 0

    def get(self, claim: Claim) -> Definition | None:
        key = (claim.job, claim.revision)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
        return known

    async def read(self, wanted: Iterable[Key]) -> dict[Key, Definition]:
        """These. One that is gone, or that this version cannot read, is left out."""
        found: dict[Key, Definition] = {}
        for some in _in_parts(list(dict.fromkeys(wanted))):
            found |= await self._store.live.definitions(some)
        self._keep(found)
        return found

    def unknown(self, jobs: Iterable[Key]) -> list[Key]:
        return [key for key in jobs if key not in self._known]

    def _keep(self, found: Mapping[Key, Definition]) -> None:
        for key, definition in found.items():
            if key not in self._known:
                self.bytes += definition.size
                self._known[key] = definition
        while self.bytes > MOST_BYTES and self._known:
            _, dropped = self._known.popitem(last=False)
            self.bytes -= dropped.size


def _in_parts(wanted: Sequence[Key]) -> Iterator[Sequence[Key]]:
    return (wanted[start : start + AT_ONCE] for start in range(0, len(wanted), AT_ONCE))
