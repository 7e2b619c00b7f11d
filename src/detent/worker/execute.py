"""One claim to one outcome. No store here: nothing is written but by the handler itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from detent import failpoints
from detent.identity import RunKey
from detent.keys import idempotency_key
from detent.model import Call, Claim, Definition, Failed, Outcome, TargetKind, kind_of

Runner = Callable[[Call], Awaitable[Outcome]]

LONGEST_ERROR = 8000


def call_of(claim: Claim, definition: Definition) -> Call:
    job_id, name, spec = definition
    key = RunKey(claim.job, claim.scheduled_at, claim.serial)
    return Call(
        job_id=str(job_id),
        job=name,
        run_id=str(claim.run_id),
        scheduled_at=claim.scheduled_at,
        attempt=claim.attempt,
        idempotency_key=idempotency_key(job_id, name, spec, key),
        token=claim.token,
        payload=spec.payload,
        target=spec.target,
        timeout_seconds=spec.timeout_seconds,
    )


async def execute(call: Call, runners: Mapping[TargetKind, Runner]) -> Outcome:
    """Run the target within its time limit. Being cancelled is the caller's business and passes through."""
    kind = kind_of(call.target)
    runner = runners.get(kind)
    if runner is None:
        return Failed(f"This worker cannot run {kind} targets.", retryable=False)
    limit = asyncio.timeout(call.timeout_seconds)
    try:
        await failpoints.hit("W3")
        async with limit:
            outcome = await runner(call)
        await failpoints.hit("W4")
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Failed("The handler cancelled itself.")
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            return Failed(f"No answer within {call.timeout_seconds:g} s.", outcome="timeout")
        return Failed(_describe(error))
    return outcome


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")[:LONGEST_ERROR]
