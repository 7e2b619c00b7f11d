"""The cluster as a whole: its identity, its hold, its figures."""

from __future__ import annotations

from detent.store.statement import Statement

ADOPT = Statement(__name__, "adopt")
CHECK_TIMELINE = Statement(__name__, "check_timeline")
FOLLOW = Statement(__name__, "follow")
HOLD_FOR_CLOCK = Statement(__name__, "hold_for_clock")
MEASURE_LOAD = Statement(__name__, "measure_load")
MEASURE_THROUGHPUT = Statement(__name__, "measure_throughput")
PAUSE_ALL = Statement(__name__, "pause_all")
READ = Statement(__name__, "read")
READ_HOLD = Statement(__name__, "read_hold")
READ_IDENTITY = Statement(__name__, "read_identity")
READ_SIGNALS = Statement(__name__, "read_signals")
RESUME_ALL = Statement(__name__, "resume_all")
