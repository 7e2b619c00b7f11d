"""Browser sessions."""

from __future__ import annotations

from detent.store.statement import Statement

END = Statement(__name__, "end")
FIND_ENDED = Statement(__name__, "find_ended")
FIND_KEY = Statement(__name__, "find_key")
LIST_DIGESTS = Statement(__name__, "list_digests")
OPEN = Statement(__name__, "open")
PURGE = Statement(__name__, "purge")
