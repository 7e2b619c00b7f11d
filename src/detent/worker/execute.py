"""One claim to one outcome. No store here: only the handler itself may write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import lru_cache, partial

import msgspec
from msgspec.structs import replace

from detent.domain.documents import encode_json
from detent.domain.idempotency import idempotency_key, plain_key
from detent.domain.identity import RunKey, milliseconds, run_id_text
from detent.domain.job import Definition, JobSpec, TargetKind, kind_of
from detent.domain.masking import Mask, literal_mask
from detent.domain.run import Call, Cancelled, Claim, Failed, NotBegun, Outcome, Succeeded
from detent.errors import Retry
from detent.runtime import failpoints
from detent.targets.exceptions import LONGEST_ERROR, failure_of, kinds_of
from detent.telemetry.log import hiding
from detent.worker.windows import Windows

Runner = Callable[[Call], Awaitable[Outcome | NotBegun]]

windows = Windows()

# Of a run id, at its end: the number of its job.
JOB_DIGITS = 12
OVERDUE = kinds_of(TimeoutError())
ASKED = f"{Retry.__module__}.{Retry.__qualname__}"
"""A handler that raises it is retried, whatever else its job retries."""


@lru_cache(maxsize=16)
def _texts_of(tick: datetime) -> tuple[str, str]:
    """The parts of run ids and idempotency keys that runs of the same tick share: what comes before the job's number,
    and after the job's id. Computed for each run, they were a tenth of what it cost the node."""
    time = milliseconds(tick)
    return run_id_text(0, time, 0)[:-JOB_DIGITS], plain_key("", time)


def call_of(claim: Claim, definition: Definition) -> Call:
    job_id, name, spec = definition[:3]
    job, serial, scheduled_at = claim.job, claim.serial, claim.scheduled_at
    text = str(job_id)
    if serial or spec.idempotency_key_template is not None:
        run = run_id_text(job, milliseconds(scheduled_at), serial)
        key = idempotency_key(job_id, name, spec, RunKey(job, scheduled_at, serial))
    else:  # nearly always
        before, after = _texts_of(scheduled_at)
        run, key = f"{before}{job:012x}", text + after
    return Call(
        text,
        name,
        run,
        scheduled_at,
        claim.attempt,
        key,
        claim.token,
        spec.payload,
        spec.target,
        spec.timeout_seconds,
        definition.tenant,
        window=partial(windows.start, claim, definition),
        mask=literal_mask(spec.target),
        timezone=spec.timezone,
        lost=claim.crashes - 1 if claim.crashes > 1 else 0,
    )


def execute(call: Call, runners: Mapping[TargetKind, Runner]) -> Awaitable[Outcome | NotBegun]:
    """Call the target. From here on it counts as called, unless its runner returns `NotBegun`: whatever it raises is a
    failed attempt. Only a cancellation of this task, by request or at the deadline, is raised to the caller, which
    knows the reason."""
    runner = runners.get(kind_of(call.target), _no_runner)
    return _call(call, runner) if call.mask is None else _call_masked(call, runner, call.mask)


async def _no_runner(call: Call) -> Outcome:
    return Failed(f"This worker cannot run {kind_of(call.target)} targets.", retryable=False)


async def _call_masked(call: Call, runner: Runner, mask: Mask) -> Outcome | NotBegun:
    with hiding(mask):
        return masked(await _call(call, runner), mask)


async def _call(call: Call, runner: Runner) -> Outcome | NotBegun:
    try:
        if not failpoints.any_armed():
            return await runner(call)
        await failpoints.hit("W3")
        outcome = await runner(call)
        await failpoints.hit("W4")
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return failure_of(error, call.mask)
    except BaseException as error:  # a handler may raise any: SystemExit, KeyboardInterrupt, kinds of its own
        return failure_of(error, call.mask)
    return outcome


def masked(outcome: Outcome | NotBegun, mask: Mask) -> Outcome | NotBegun:
    """The outcome without the values of secrets, which a target may have sent back."""
    match outcome:
        case Succeeded(result=result):
            return Succeeded(masked_result(result, mask))
        case Failed(error=error, result=result, traceback=trace):
            hidden = mask.cut_text(error) if len(error) >= LONGEST_ERROR else mask.text(error)
            trace = None if trace is None else mask.text(trace)
            return replace(outcome, error=hidden, result=masked_result(result, mask), traceback=trace)
        case Cancelled(reason=reason):
            return Cancelled(mask.text(reason))
        case _:
            return outcome


def masked_result(result: str | None, mask: Mask) -> str | None:
    if result is None:
        return None
    try:
        return encode_json(mask.document(msgspec.json.decode(result)))
    except RecursionError:
        return encode_json("(left out: nested too deeply to be searched for secrets)")


def is_retryable(spec: JobSpec, failed: Failed) -> bool:
    """Whether to retry: the failure allows it, and so does the job. `retry_on` says nothing about failures that are no
    exceptions, such as a process that died."""
    kinds = kinds_in(failed)
    if not failed.retryable or any(name in spec.no_retry_on for name in kinds):
        return False
    return not spec.retry_on or not kinds or ASKED in kinds or any(name in spec.retry_on for name in kinds)


def kinds_in(failed: Failed) -> tuple[str, ...]:
    """The names of its exception, from the class to its bases. An attempt over its time limit counts as a
    TimeoutError."""
    return tuple(failed.kinds) or (OVERDUE if failed.outcome == "timeout" else ())


def wait_asked(spec: JobSpec, failed: Failed) -> float | None:
    """The wait that the job has for this exception, the most specific one counting."""
    if not spec.retry_delays:
        return None
    return next((spec.retry_delays[name] for name in kinds_in(failed) if name in spec.retry_delays), None)
