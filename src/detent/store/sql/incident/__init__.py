"""Expectations of jobs, and the incidents of those that were missed."""

from __future__ import annotations

from detent.store.statement import Statement

COUNT_OPEN = Statement(__name__, "count_open")
EVALUATE_EXPECTATIONS = Statement(__name__, "evaluate_expectations")
LIST = Statement(__name__, "list")
LIST_OF_JOB = Statement(__name__, "list_of_job")
LIST_OPEN = Statement(__name__, "list_open")
PURGE = Statement(__name__, "purge")
