"""Tenants, their quotas and reservations."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
ALLOW_TARGETS = Statement(__name__, "allow_targets")
CANCEL_OLD_RESERVATIONS = Statement(__name__, "cancel_old_reservations")
CANCEL_RESERVATION = Statement(__name__, "cancel_reservation")
CHANGE = Statement(__name__, "change")
CORRECT_JOB_COUNT = Statement(__name__, "correct_job_count")
DISALLOW_TARGETS = Statement(__name__, "disallow_targets")
LIST = Statement(__name__, "list")
LOCK = Statement(__name__, "lock")
READ_ALLOW_LISTS = Statement(__name__, "read_allow_lists")
READ_JOB_QUOTA = Statement(__name__, "read_job_quota")
READ_NAME = Statement(__name__, "read_name")
READ_PAYLOAD_LIMIT = Statement(__name__, "read_payload_limit")
RECLAIM_RESERVATIONS = Statement(__name__, "reclaim_reservations")
RECOUNT_JOBS = Statement(__name__, "recount_jobs")
RESERVE_JOBS = Statement(__name__, "reserve_jobs")
SET_SIGNING = Statement(__name__, "set_signing")
USE_RESERVATION = Statement(__name__, "use_reservation")
