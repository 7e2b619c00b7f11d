"""Messages about incidents, and of alert rules."""

from __future__ import annotations

from detent.store.statement import Statement

END = Statement(__name__, "end")
POSTPONE = Statement(__name__, "postpone")
READ_FAILING = Statement(__name__, "read_failing")
TAKE = Statement(__name__, "take")
