"""Jobs as the runs in hand were fired with, remembered by (job, revision), which never changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from detent.model import Claim, Definition
from detent.service import Batcher
from detent.store import Store

KEPT = 50_000


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
        self._ask: Batcher[tuple[int, int], Definition | None] = Batcher(self._fetch)

    async def __call__(self, job: int, revision: int) -> Definition | None:
        known = self._known.get((job, revision))
        if known is not None:
            self._known.move_to_end((job, revision))
            return known
        return await self._ask((job, revision))

    async def _fetch(self, wanted: Sequence[tuple[int, int]]) -> Sequence[Definition | None]:
        found = await self._store.live.definitions(list(dict.fromkeys(wanted)))
        self._known.update(found)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return [found.get(item) for item in wanted]
