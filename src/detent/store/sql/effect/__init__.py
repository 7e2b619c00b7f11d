"""What handlers have done: steps of runs, and effects that happen once."""

from __future__ import annotations

from detent.store.statement import Statement

ADD_STEP = Statement(__name__, "add_step")
LIST_STEPS = Statement(__name__, "list_steps")
MARK = Statement(__name__, "mark")
PURGE_MARKS = Statement(__name__, "purge_marks")
PURGE_STEPS = Statement(__name__, "purge_steps")
READ_STEPS = Statement(__name__, "read_steps")
VERIFY_HOLD = Statement(__name__, "verify_hold")
