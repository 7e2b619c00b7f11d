"""Jobs whose tick cannot be fired."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
LIST = Statement(__name__, "list")
PURGE = Statement(__name__, "purge")
