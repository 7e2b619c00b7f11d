"""Cursors: the next tick of each job, and the fires that move it."""

from __future__ import annotations

from detent.store.statement import Statement

FIRE = Statement(__name__, "fire")
FIRE_CAREFUL = Statement(__name__, "fire_careful")
LOOK_AT_DELAYS = Statement(__name__, "look_at_delays")
MARK_CROWDED = Statement(__name__, "mark_crowded")
MISS = Statement(__name__, "miss")
MOVE = Statement(__name__, "move")
READ = Statement(__name__, "read")
READ_WINDOW = Statement(__name__, "read_window")
