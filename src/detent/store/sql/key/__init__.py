"""API keys."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
FIND_ANY = Statement(__name__, "find_any")
FIND_ANY_VALID = Statement(__name__, "find_any_valid")
FIND_VALID = Statement(__name__, "find_valid")
LIST = Statement(__name__, "list")
LIST_DIGESTS = Statement(__name__, "list_digests")
REVOKE = Statement(__name__, "revoke")
TOUCH = Statement(__name__, "touch")
