"""Dead runs that are forwarded to a topic."""

from __future__ import annotations

from detent.store.statement import Statement

END = Statement(__name__, "end")
NEXT_DUE = Statement(__name__, "next_due")
POSTPONE = Statement(__name__, "postpone")
READ_FAILING = Statement(__name__, "read_failing")
TAKE = Statement(__name__, "take")
