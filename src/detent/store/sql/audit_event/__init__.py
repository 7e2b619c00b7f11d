"""The audit log: events of changes, and their chain of hashes."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
CHAIN = Statement(__name__, "chain")
LIST = Statement(__name__, "list")
LIST_CHAIN = Statement(__name__, "list_chain")
LIST_UNCHAINED = Statement(__name__, "list_unchained")
PURGE = Statement(__name__, "purge")
READ_CHAIN = Statement(__name__, "read_chain")
