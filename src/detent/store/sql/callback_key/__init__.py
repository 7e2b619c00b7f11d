"""Keys that sign the credentials of callbacks."""

from __future__ import annotations

from detent.store.statement import Statement

CREATE = Statement(__name__, "create")
LIST = Statement(__name__, "list")
