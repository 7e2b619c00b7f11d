"""Dead runs that no operator has dealt with."""

from __future__ import annotations

from detent.store.statement import Statement

COUNT = Statement(__name__, "count")
COUNT_NEWEST = Statement(__name__, "count_newest")
DISCARD = Statement(__name__, "discard")
GROUP = Statement(__name__, "group")
LIST = Statement(__name__, "list")
LIST_NEWEST_OF_GROUP = Statement(__name__, "list_newest_of_group")
LIST_OLDEST = Statement(__name__, "list_oldest")
