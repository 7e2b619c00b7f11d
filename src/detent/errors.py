"""The exception tree.

    DetentError             exit code 1   everything detent raises on purpose
    ├── UsageError          exit code 2   the input is wrong; `pointer` says where
    ├── NotFound            exit code 3   no such job, run, queue, …
    ├── NotAuthorised       exit code 4   no key, or a key without this right
    ├── RunFailed           exit code 5   the run that was waited for did not succeed
    ├── Conflict            exit code 6   the thing exists already or was changed meanwhile
    ├── QuotaReached        exit code 6   the tenant has reached its quota
    ├── Unavailable         exit code 7   database unreachable or not migrated, port taken, …
    ├── StartupFailed       exit code 1   what the app runs before its first run failed
    └── OwnershipLost       exit code 1   another node owns what this write names

Three more are for handlers to raise about their run: NotRetryable, Retry and Discard.

Every message is one sentence for a person: what was read, and how to correct it.
The command line turns the class into its exit code, the API into its status.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar


class NotRetryable(Exception):  # noqa: N818 - it says what the failure is
    """Raise this in a handler when a retry cannot help: the run is dead at once."""


class PayloadMismatch(NotRetryable):
    """The payload of a run does not fit the parameters of its function: no attempt can succeed."""


class Retry(Exception):  # noqa: N818 - as above
    """Raise this in a handler to be called again, after at least `after`, a number of seconds or a timedelta.

    The attempt counts as failed. The job's `retry_max_seconds` is the longest wait. Without `after`, or with any other
    value, the job decides the wait, and in the latter case the error of the attempt says so: an exception that reports
    a failure must not fail itself.
    """

    def __init__(self, message: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(message)
        self.after = after


class Discard(Exception):  # noqa: N818 - as above
    """Raise this in a handler when the run is pointless: it ends `cancelled` with this reason. It is not retried, and
    is no dead letter."""


class DetentError(Exception):
    """Base of everything detent raises on purpose."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageError(DetentError):
    """The input is wrong; `pointer` is the JSON pointer of the wrong part, empty for the whole."""

    exit_code = 2

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer


class ManyFaults(UsageError):  # noqa: N818 - it says what there are
    """Several parts of the input are wrong; `faults` holds them, up to a limit."""

    def __init__(self, message: str, faults: Sequence[UsageError]) -> None:
        super().__init__(message, faults[0].pointer)
        self.faults = faults


class NotFound(DetentError):  # noqa: N818 - named after the answer the user gets
    exit_code = 3


class NotAuthorised(DetentError):  # noqa: N818 - as above
    exit_code = 4


class RunFailed(DetentError):  # noqa: N818 - as above
    """A run did not succeed. `status` is how it ended, `error` and `traceback` are those of its last attempt, where
    they are known."""

    exit_code = 5

    def __init__(
        self, message: str, *, status: str | None = None, error: str | None = None, traceback: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.traceback = traceback
        if traceback:
            self.add_note(f"On the worker:\n{traceback}")


class Conflict(DetentError):  # noqa: N818 - as above
    exit_code = 6


class RevisionMismatch(Conflict):
    """The resource is no longer at the revision that a change was made for; `revision` is its current one."""

    def __init__(self, message: str, revision: int | None) -> None:
        super().__init__(message)
        self.revision = revision


class QuotaReached(DetentError):  # noqa: N818 - as above
    """A tenant has reached its quota: `used` of `limit`."""

    exit_code = 6

    def __init__(self, message: str, *, limit: int, used: int) -> None:
        super().__init__(message)
        self.limit = limit
        self.used = used


class Unavailable(DetentError):  # noqa: N818 - as above
    exit_code = 7


class OwnershipLost(DetentError):  # noqa: N818 - as above
    """A fenced write matched no row: the token, owner or term it names is no longer current."""


class StartupFailed(DetentError):  # noqa: N818 - as above
    """The lifespan, a start-up hook or a worker-scoped dependency of an app failed: the worker runs nothing of it."""


class JobNotFound(NotFound):
    def __init__(self, job_id: object) -> None:
        super().__init__(f"There is no job {job_id}: list the jobs to see the existing ones.")


class RunNotFound(NotFound):
    def __init__(self, run_id: object) -> None:
        super().__init__(f"There is no run {run_id}: list the runs to see the existing ones.")


class KeyNotFound(NotFound):
    def __init__(self, key_id: str) -> None:
        super().__init__(f"There is no key {key_id!r}: list the keys to see the existing ones.")


class RoleBindingNotFound(NotFound):
    def __init__(self, number: object) -> None:
        super().__init__(f"There is no role binding {number}: `detent role list` shows the existing ones.")


class RoleAlreadyBound(Conflict):
    def __init__(self, kind: str, subject: str) -> None:
        super().__init__(f"The {kind} {subject!r} has this role already, for the same jobs.")


class TenantNotFound(NotFound):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is no tenant {name!r}: `detent tenant list` shows the existing ones.")


class TenantExists(Conflict):
    def __init__(self, name: str) -> None:
        super().__init__(f"A tenant named {name!r} already exists: choose another name.")


class DefaultTenantNeeded(Conflict):
    def __init__(self, what: str) -> None:
        super().__init__(
            f"The default tenant manages the cluster and cannot be {what}: pause its jobs, or delete them."
        )


class TenantNotSuspended(Conflict):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"The tenant {name!r} is not suspended: run `detent tenant suspend {name}` first, and delete it when "
            "you are sure."
        )


class TenantBeingDeleted(Conflict):
    def __init__(self, name: str) -> None:
        super().__init__(f"The tenant {name!r} is being deleted, which cannot be undone: create another one.")


class JobQuotaReached(QuotaReached):
    def __init__(self, asked: int, *, used: int, limit: int, tenant: str) -> None:
        more = "one more" if asked == 1 else f"{asked} more"
        has = "1 job" if used == 1 else f"{used} jobs"
        super().__init__(
            f"The tenant {tenant!r} has {has} and may have {limit}, so {more} cannot be registered: delete some, "
            f"or ask an administrator to raise the quota with `detent tenant quota {tenant} --jobs N`.",
            limit=limit,
            used=used,
        )


class StorageQuotaReached(QuotaReached):
    def __init__(self, *, used: int, limit: int, tenant: str) -> None:
        super().__init__(
            f"The definitions and results of the tenant {tenant!r} took {used} bytes when they were last measured and "
            f"may take {limit}, so no job can be registered: delete some, wait until old results expire, or ask an "
            f"administrator to raise the quota with `detent tenant quota {tenant} --storage BYTES`.",
            limit=limit,
            used=used,
        )


class TenantSuspended(NotAuthorised):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"The tenant {name!r} is suspended, so its requests are refused: ask an administrator of the cluster to "
            f"resume it with `detent tenant resume {name}`."
        )


class RequestInProgress(Conflict):
    def __init__(self, key: str) -> None:
        super().__init__(f"A request with the idempotency key {key!r} is in progress: wait until it has ended.")


class IdempotencyKeyReused(UsageError):  # noqa: N818 - it says what is wrong
    def __init__(self, key: str) -> None:
        super().__init__(f"The idempotency key {key!r} was used for another request: use a new key for each request.")
