"""Messages about incidents."""

from __future__ import annotations

from detent.store.statement import Statement

END = Statement(__name__, "end")
POSTPONE = Statement(__name__, "postpone")
TAKE = Statement(__name__, "take")
