"""One claim to one outcome. No store here: nothing is written but by the handler itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from detent import failpoints
from detent.errors import NotRetryable, RetryLater
from detent.identity import RunKey, milliseconds, run_id_text
from detent.keys import idempotency_key, plain_key
from detent.model import Call, Claim, Definition, Failed, JobSpec, NotBegun, Outcome, TargetKind, kind_of
from detent.worker.windows import Windows

Runner = Callable[[Call], Awaitable[Outcome | NotBegun]]

LONGEST_ERROR = 8000
LONGEST_WAIT = 31_536_000.0
windows = Windows()


def call_of(claim: Claim, definition: Definition) -> Call:
    job_id, name, spec = definition[:3]
    job, serial, scheduled_at = claim.job, claim.serial, claim.scheduled_at
    time = milliseconds(scheduled_at)
    if serial or spec.idempotency_key_template is not None:
        key = idempotency_key(job_id, name, spec, RunKey(job, scheduled_at, serial))
    else:  # nearly always
        key = plain_key(job_id, time)
    return Call(
        job_id=str(job_id),
        job=name,
        run_id=run_id_text(job, time, serial),
        scheduled_at=scheduled_at,
        attempt=claim.attempt,
        idempotency_key=key,
        token=claim.token,
        payload=spec.payload,
        target=spec.target,
        timeout_seconds=spec.timeout_seconds,
        window=partial(windows.start, claim, definition),
    )


async def execute(call: Call, runners: Mapping[TargetKind, Runner]) -> Outcome | NotBegun:
    """Run the target. Being cancelled, also for want of time, is the caller's business and passes through."""
    kind = kind_of(call.target)
    runner = runners.get(kind)
    if runner is None:
        return Failed(f"This worker cannot run {kind} targets.", retryable=False)
    try:
        if not failpoints.any_armed():
            return await runner(call)
        await failpoints.hit("W3")
        outcome = await runner(call)
        await failpoints.hit("W4")
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Failed("The handler cancelled itself.")
    except Exception as error:
        return failure_of(error)
    return outcome


def failure_of(error: Exception) -> Failed:
    """What an exception that came out of a handler means for its run."""
    if isinstance(error, NotRetryable):
        return Failed(_describe(error), retryable=False)
    wait = min(max(error.seconds, 0.0), LONGEST_WAIT) if isinstance(error, RetryLater) else None
    return Failed(_describe(error), retry_after=wait, kinds=kinds_of(error))


def is_retryable(spec: JobSpec, failed: Failed) -> bool:
    """Whether another try may help, also by the word of the job."""
    return failed.retryable and not any(name in spec.no_retry_on for name in failed.kinds)


def kinds_of(error: Exception) -> tuple[str, ...]:
    kinds = [kind for kind in type(error).__mro__ if issubclass(kind, Exception)]
    return tuple(name for kind in kinds for name in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}"))


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")[:LONGEST_ERROR]
