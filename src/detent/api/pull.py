"""The pull protocol: workers in any language claim runs of a queue, send heartbeats, and report the outcome.

Every call after the claim names the run's token. A report may be repeated until it is answered: the second gets the
answer of the first. A report that comes after another worker got the run is a 409, and is kept as `stale`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from time import time

from msgspec import UNSET

from detent.api.access_watch import OpenAccess
from detent.api.auth import bad_key, no_key
from detent.api.callbacks import check_token
from detent.api.context import PREFIX, Api
from detent.api.pull_waiters import ClaimTerms
from detent.api.queues import check_length
from detent.api.references import run_key
from detent.api.role_limits import check_claim
from detent.api.routing import Routes
from detent.contract.pull import (
    ClaimedRun,
    ClaimedRuns,
    ClaimRequest,
    CompleteRequest,
    FailRequest,
    HeartbeatRequest,
    Lease,
    ProgressReport,
    SettledRun,
)
from detent.domain.callbacks import WORKER_PREFIX
from detent.domain.documents import encode_json
from detent.domain.identity import RunKey, decode_run_id, run_id
from detent.domain.job import TASK_NEEDS
from detent.domain.masking import Mask
from detent.domain.run import Claim, Failed
from detent.domain.run_output import ProgressMark
from detent.domain.text import check_seen
from detent.errors import DetentError, RunNotFound, Unavailable, UsageError
from detent.store.db import OutcomeUnknown, PoolName
from detent.store.job_limits import current_limits
from detent.store.pull import Pulled, Wanted
from detent.targets.exceptions import describe
from detent.targets.text import storable_text
from detent.targets.tracebacks import shortened_traceback
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.worker.definitions import payload_fault, with_own_payload
from detent.worker.execute import call_of, masked_result
from detent.worker.pull import Settled
from detent.worker.secret_providers import SecretFault

log = logger("pull")

routes = Routes(PREFIX)


@routes.post("/queues/{queue}/claim", scope="work")
async def claim_runs(
    api: Api, queue: str, body: ClaimRequest, disconnected: Callable[[], Awaitable[None]]
) -> ClaimedRuns:
    """Claim runs of a queue for a worker, waiting for some if there are none."""
    check_length(queue)
    check_claim(queue)
    check_seen(body.worker, "The name of the worker", "/worker")
    if body.worker.startswith(WORKER_PREFIX):
        raise UsageError(f"Names with {WORKER_PREFIX} are of runs that wait for a callback: choose another.", "/worker")
    asking = ClaimTerms(
        api.tenant, body.worker, _wanted(queue, body), body.limit, timedelta(seconds=body.lease_seconds), _named(body)
    )
    pulled = await _claim(api, asking, body.wait_seconds, disconnected)
    if transitions.debug_enabled():
        for each in pulled:
            transitions.log.debug("run claimed", **transitions.facts_of(each.claim, None), worker=body.worker)
    return ClaimedRuns(await _hand_out(api, pulled))


@routes.post("/runs/{id}/heartbeat", scope="work", callback=True)
async def heartbeat_run(api: Api, id: str, body: HeartbeatRequest) -> Lease:  # noqa: A002 - part of the contract
    """Extend the lease of a claimed run; the answer says whether the run was asked to stop."""
    lease = None if body.lease_seconds is UNSET else timedelta(seconds=body.lease_seconds)
    check_token(api.caller, body.token)
    key = await reached(api, id)
    extended = await api.pulled.heartbeat(api.tenant, key, body.token, lease)
    if body.progress is not None:
        await _record_progress(api, id, body.token, body.progress)
    return Lease(lease_until=extended.lease_until, cancel=extended.cancel)


async def _record_progress(api: Api, run: str, token: int, report: ProgressReport) -> None:
    """After the heartbeat, which says whether the run is still held. Without progress the run goes on all the same."""
    mask = await mask_of(api, run, token)
    message = storable_text(report.message if mask is None else mask.text(report.message))
    mark = ProgressMark(run, token, report.fraction, message, time())
    try:
        await api.store.output.add_progress([mark], pool=PoolName.PULL)
    except DetentError as error:
        log.warning("the progress of a pulled run is not recorded", run_id=run, error=str(error))


@routes.post("/runs/{id}/complete", scope="work", callback=True)
async def complete_run(api: Api, id: str, body: CompleteRequest) -> SettledRun:  # noqa: A002 - as above
    """Report that a claimed run succeeded."""
    check_token(api.caller, body.token)
    result = None if body.result is None else encode_json(body.result)
    limit = api.settings.max_result_bytes
    if result is not None and len(result.encode()) > limit:
        raise UsageError(
            f"The result is {len(result.encode())} bytes of JSON and {limit} are allowed: "
            "store it elsewhere and report a reference to it.",
            "/result",
        )
    key = await reached(api, id)
    mask = await mask_of(api, id, body.token)
    if mask is not None:
        result = masked_result(result, mask)
    return _settled(id, await api.pulled.complete(api.tenant, key, body.token, result))


@routes.post("/runs/{id}/fail", scope="work", callback=True)
async def fail_run(api: Api, id: str, body: FailRequest) -> SettledRun:  # noqa: A002 - as above
    """Report that the attempt failed; the job's definition decides about a retry."""
    check_token(api.caller, body.token)
    key = await reached(api, id)
    mask = await mask_of(api, id, body.token)
    error = body.error if mask is None else mask.text(body.error)
    trace = None if body.traceback is None else storable_text(shortened_traceback(body.traceback, mask))
    retry_after, kinds = body.retry_after, tuple(body.kinds)
    failed = Failed(error, body.retryable, retry_after=retry_after, kinds=kinds, traceback=trace)
    settled = await api.pulled.fail(api.tenant, key, body.token, failed)
    if settled.wait is not None:
        api.waiters.wake_in(settled.wait)
    return _settled(id, settled)


async def reached(api: Api, text: str) -> RunKey:
    """The run, if it is within the limits of the caller: a token is a number, which can be guessed."""
    key = run_key(text)
    if current_limits() is not None and await api.store.runs.get(key, tenant=api.tenant) is None:
        raise RunNotFound(run_id(key))
    return key


async def _claim(
    api: Api, asking: ClaimTerms, wait: float, disconnected: Callable[[], Awaitable[None]]
) -> list[Pulled]:
    """As `PullWaiters.claim`. A key that ends while its claim waits gets no run."""
    ended = asyncio.Event()

    async def left() -> None:
        reasons = [asyncio.ensure_future(disconnected()), asyncio.ensure_future(ended.wait())]
        try:
            await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for reason in reasons:
                reason.cancel()

    with api.access.watching(OpenAccess(api.caller.key), ended.set):
        pulled = await api.waiters.claim(asking, wait, left)
    if ended.is_set():
        await api.waiters.put_back(pulled)
        raise no_key() if api.caller.key is None else bad_key()
    return pulled


def _wanted(queue: str, body: ClaimRequest) -> Wanted:
    if body.functions is not None and "python" not in body.targets:
        raise UsageError(
            "functions are given, but targets does not have python: add it, or leave functions out.", "/functions"
        )
    has = {"": "http" in body.targets, "shell": "shell" in body.targets}
    # A worker that pulls is a separate process already.
    names = tuple(sorted(f"{kind}:{name}" for kind in ("python", "process") for name in set(body.functions or ())))
    kinds = tuple(need for need, wanted in has.items() if wanted)
    capabilities = kinds + names
    of_tasks = tuple(f"{TASK_NEEDS}{need}" for need in capabilities)
    return Wanted(queue, capabilities + of_tasks, "python" in body.targets and body.functions is None)


def _named(body: ClaimRequest) -> tuple[RunKey, ...]:
    if body.runs is None:
        return ()
    if body.wait_seconds:
        raise UsageError(
            "runs are given, and a claim does not wait for runs that it names: leave wait_seconds out.", "/wait_seconds"
        )
    keys = [decode_run_id(each) for each in body.runs]
    for number, key in enumerate(keys):
        if key is None:
            raise UsageError(
                f"{body.runs[number]} is not the id of a run: give run_id of the offer.", f"/runs/{number}"
            )
    return tuple(key for key in keys if key is not None)


async def _hand_out(api: Api, pulled: Sequence[Pulled]) -> list[ClaimedRun]:
    """The claim is committed, so each run is delivered, ended or returned by itself: an error that escaped here would
    affect the others, and all would be claimed again when their leases end."""
    runs: list[ClaimedRun] = []
    unread: list[Pulled] = []
    away: DetentError | None = None
    for each in pulled:
        try:
            if away is not None and each.claim.key.manual:  # it would wait for the same failure
                raise away
            run = await _claimed(api, each)
        except (Unavailable, OutcomeUnknown) as error:
            away = error
            unread.append(each)
        except Exception as error:
            await _end(api, each.claim, f"This run cannot be handed to a worker: {describe(error)}")
        else:
            runs += [run] if run is not None else []
    await api.waiters.put_back(unread)
    if away is not None and not runs:
        raise away  # an error, not an empty answer: the worker should retry
    api.pulled.started(len(runs))
    return runs


async def _end(api: Api, claim: Claim, error: str, *, retryable: bool = False) -> None:
    """Fail a run that cannot be delivered to a worker. If that fails too, the run ends after several expired
    leases."""
    try:
        await api.pulled.fail(api.tenant, claim.key, claim.token, Failed(error, retryable=retryable))
    except Exception as failure:
        facts = transitions.facts_of(claim, None)
        log.error("a run that cannot be delivered is not ended", **facts, why=error, error=describe(failure))


async def _claimed(api: Api, pulled: Pulled) -> ClaimedRun | None:
    """None: the job's definition is unknown, or a secret cannot be used, and the attempt has failed."""
    claim = pulled.claim
    definition = await with_own_payload(api.store, claim, pulled.definition, pool=PoolName.PULL)
    if definition is None:
        await _end(api, claim, "The job's definition is gone, or this version cannot read it.")
        return None
    if (mismatch := await payload_fault(claim, definition)) is not None:
        await _end(api, claim, mismatch)
        return None
    call = call_of(claim, definition)
    if definition.refers and api.caller.scope == "secrets":
        try:
            call = await api.secret_values.fill_for_pull(call, definition._replace(tenant=api.tenant))
        except SecretFault as fault:
            await _end(api, claim, str(fault), retryable=True)
            return None
    return ClaimedRun(
        run_id=claim.run_id,
        job_id=definition.job_id,
        job=call.job,
        scheduled_at=call.scheduled_at,
        window_start=call.window_start,
        window_end=call.scheduled_at,
        attempt=call.attempt,
        token=call.token,
        idempotency_key=call.idempotency_key,
        payload=call.payload,
        target=call.target,
        timeout_seconds=call.timeout_seconds,
        lease_until=pulled.lease_until,
    )


async def mask_of(api: Api, run: str, token: int) -> Mask | None:
    """What hides the secrets that this worker got with its claim, or this target with its call, and literal
    credentials; None: there are none."""
    if api.caller.callback is not None:
        return Mask((api.caller.callback[1],)).joined(await _mask_of_lease(api, run, token))
    return await _mask_of_lease(api, run, token) if api.caller.scope == "secrets" else None


async def _mask_of_lease(api: Api, run: str, token: int) -> Mask | None:
    known, key = api.store.pull, run_key(run)
    held = await known.held(api.tenant, key, token) or (
        await known.held_early(api.tenant, key, token) if api.caller.callback is not None else None
    )
    if held is None:
        return None
    definition = await with_own_payload(api.store, held.claim, held.definition, pool=PoolName.PULL)
    if definition is None:
        return None
    call = call_of(held.claim, definition)
    if not definition.refers:
        return call.mask
    try:
        return (await api.secret_values.fill_for_pull(call, definition._replace(tenant=api.tenant))).mask
    except SecretFault as fault:
        raise Unavailable(f"{fault} Without it the report cannot be masked: report again later.") from fault


def _settled(text: str, settled: Settled) -> SettledRun:
    wait = None if settled.wait is None else settled.wait.total_seconds()
    return SettledRun(id=run_id(run_key(text)), status=settled.status, retry_in_seconds=wait)
