"""Jobs: registration, changes, lists."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
ADOPT = Statement(__name__, "adopt")
ANNOTATE_PAUSE = Statement(__name__, "annotate_pause")
CHECK_TENANT = Statement(__name__, "check_tenant")
COLLECT = Statement(__name__, "collect")
COMPLETE = Statement(__name__, "complete")
FIND = Statement(__name__, "find")
FIND_BY_ID_RANGE = Statement(__name__, "find_by_id_range")
FIND_BY_IDS = Statement(__name__, "find_by_ids")
FIND_DEAD_STREAKS = Statement(__name__, "find_dead_streaks")
FIND_GONE = Statement(__name__, "find_gone")
FIND_LAST = Statement(__name__, "find_last")
FIND_NUMBERS = Statement(__name__, "find_numbers")
FIND_TAKEN_NAMES = Statement(__name__, "find_taken_names")
LIST = Statement(__name__, "list")
LIST_BY_NAME = Statement(__name__, "list_by_name")
LIST_DELETED_WITH_RUNS = Statement(__name__, "list_deleted_with_runs")
LIST_ENDING_PAUSES = Statement(__name__, "list_ending_pauses")
LIST_FEW = Statement(__name__, "list_few")
LIST_NAMES_NEAR = Statement(__name__, "list_names_near")
LIST_OWNED = Statement(__name__, "list_owned")
PURGE = Statement(__name__, "purge")
READ = Statement(__name__, "read")
READ_FOR_BULK = Statement(__name__, "read_for_bulk")
READ_FOR_CHANGE = Statement(__name__, "read_for_change")
READ_FOR_EXPLANATION = Statement(__name__, "read_for_explanation")
READ_MANY_FOR_CHANGE = Statement(__name__, "read_many_for_change")
REVISE = Statement(__name__, "revise")
