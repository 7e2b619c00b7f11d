"""On-demand runs that wait: enqueue, claim, retry, end."""

from __future__ import annotations

from detent.store.statement import Statement

CANCEL = Statement(__name__, "cancel")
CANCEL_OF_JOBS = Statement(__name__, "cancel_of_jobs")
CLAIM = Statement(__name__, "claim")
CLAIM_KEYED = Statement(__name__, "claim_keyed")
CLAIM_PARKED = Statement(__name__, "claim_parked")
COUNT_WAITING = Statement(__name__, "count_waiting")
ENQUEUE = Statement(__name__, "enqueue")
ENQUEUE_AS_CALLER = Statement(__name__, "enqueue_as_caller")
FIND = Statement(__name__, "find")
LIST = Statement(__name__, "list")
LIST_DELETED_JOBS = Statement(__name__, "list_deleted_jobs")
LIST_HEADS = Statement(__name__, "list_heads")
LIST_JOBS_WITH_WAITING = Statement(__name__, "list_jobs_with_waiting")
LIST_PARKED_KEYS = Statement(__name__, "list_parked_keys")
LIST_UNFINISHED = Statement(__name__, "list_unfinished")
LIST_WAITING = Statement(__name__, "list_waiting")
PURGE_KEY_PLACES = Statement(__name__, "purge_key_places")
PURGE_KEY_RATES = Statement(__name__, "purge_key_rates")
PURGE_UNIQUE_KEYS = Statement(__name__, "purge_unique_keys")
PUT_OFF = Statement(__name__, "put_off")
READ_FOR_EXPLANATION = Statement(__name__, "read_for_explanation")
READ_JOB = Statement(__name__, "read_job")
READ_TO_RERUN = Statement(__name__, "read_to_rerun")
REDRIVE = Statement(__name__, "redrive")
RELEASE_LANED = Statement(__name__, "release_laned")
RERUN = Statement(__name__, "rerun")
SETTLE_RETRY = Statement(__name__, "settle_retry")
UNPARK = Statement(__name__, "unpark")
