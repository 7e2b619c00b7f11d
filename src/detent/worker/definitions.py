"""Jobs as the runs in hand were fired with, remembered by (job, revision), which never changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

import msgspec

from detent.model import Claim, Definition
from detent.store import Store

KEPT = 50_000
AT_ONCE = 1000


async def with_own_payload(store: Store, claim: Claim, definition: Definition | None) -> Definition | None:
    """The definition as this run has it: one that was triggered by hand may have brought a payload, and its retries and
    repeats have the same."""
    if definition is None or not claim.key.manual:
        return definition
    payload = await store.live.own_payload(claim.key)
    if payload is None:
        return definition
    return definition._replace(spec=msgspec.structs.replace(definition.spec, payload=msgspec.json.decode(payload)))


class Definitions:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[tuple[int, int], Definition] = OrderedDict()

    def get(self, claim: Claim) -> Definition | None:
        known = self._known.get((claim.job, claim.revision))
        if known is not None:
            self._known.move_to_end((claim.job, claim.revision))
        return known

    async def read(self, claims: Collection[Claim]) -> dict[tuple[int, int], Definition]:
        """Those of these claims, by job and revision. One that is gone, or that this version cannot read, is left
        out."""
        wanted = list(dict.fromkeys((claim.job, claim.revision) for claim in claims))
        found: dict[tuple[int, int], Definition] = {}
        for start in range(0, len(wanted), AT_ONCE):
            found |= await self._store.live.definitions(wanted[start : start + AT_ONCE])
        self._known.update(found)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return found
