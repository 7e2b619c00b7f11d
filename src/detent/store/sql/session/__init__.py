"""Browser sessions."""

from __future__ import annotations

from detent.store.statement import Statement

CONFIRM = Statement(__name__, "confirm")
END = Statement(__name__, "end")
FIND_ENDED = Statement(__name__, "find_ended")
FIND_KEY = Statement(__name__, "find_key")
FIND_PERSON = Statement(__name__, "find_person")
LIST_DIGESTS = Statement(__name__, "list_digests")
OPEN = Statement(__name__, "open")
OPEN_FOR_PERSON = Statement(__name__, "open_for_person")
PURGE = Statement(__name__, "purge")
TAKE_CHECK = Statement(__name__, "take_check")
