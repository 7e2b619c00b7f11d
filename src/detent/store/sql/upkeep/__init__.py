"""Periodic tasks that one node does for all."""

from __future__ import annotations

from detent.store.statement import Statement

END_TURN = Statement(__name__, "end_turn")
FIND_DUE = Statement(__name__, "find_due")
KEEP_TURN = Statement(__name__, "keep_turn")
TAKE_TURN = Statement(__name__, "take_turn")
