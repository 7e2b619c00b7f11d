"""The pull protocol: workers in any language claim runs of a queue, say that they live, and report what came of them.

Every call after the claim names the run's token. A report may be sent again until it is answered: the second is told
what the first did. One that comes after the run was given to somebody else is a 409, and is kept as `stale`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from detent.api.context import PREFIX, Api
from detent.api.desk import Asking
from detent.api.routing import Routes
from detent.api.runs import run_key
from detent.contract.pull import (
    ClaimedRun,
    ClaimedRuns,
    ClaimRequest,
    CompleteRequest,
    FailRequest,
    HeartbeatRequest,
    Lease,
    SettledRun,
)
from detent.domain.documents import encode_json
from detent.domain.identity import run_id
from detent.domain.run import Claim, Failed
from detent.errors import DetentError, Unavailable, UsageError
from detent.store.db import OutcomeUnknown, PoolName
from detent.store.pull import Pulled, Wanted
from detent.targets.raised import describe
from detent.telemetry import transitions
from detent.telemetry.log import logger
from detent.worker.definitions import with_own_payload
from detent.worker.execute import call_of
from detent.worker.pull import Settled

log = logger("pull")

routes = Routes(PREFIX)


@routes.post("/queues/{queue}/claim", scope="work")
async def claim_runs(api: Api, queue: str, body: ClaimRequest, hung_up: Callable[[], Awaitable[None]]) -> ClaimedRuns:
    """Claim runs of a queue for a worker, waiting for some if there are none."""
    asking = Asking(api.tenant, body.worker, _wanted(queue, body), body.limit, timedelta(seconds=body.lease_seconds))
    pulled = await api.desk.claim(asking, body.wait_seconds, hung_up)
    if transitions.told():
        for each in pulled:
            transitions.log.debug("run claimed", **transitions.facts_of(each.claim, None), worker=body.worker)
    return ClaimedRuns(await _hand_out(api, pulled))


@routes.post("/runs/{id}/heartbeat", scope="work")
async def heartbeat_run(api: Api, id: str, body: HeartbeatRequest) -> Lease:  # noqa: A002 - part of the contract
    """Hold a claimed run for longer, and hear whether it is asked to stop."""
    lease = timedelta(seconds=body.lease_seconds)
    extended = await api.pulled.heartbeat(api.tenant, run_key(id), body.token, lease)
    return Lease(lease_until=extended.lease_until, cancel=extended.cancel)


@routes.post("/runs/{id}/complete", scope="work")
async def complete_run(api: Api, id: str, body: CompleteRequest) -> SettledRun:  # noqa: A002 - as above
    """Report that a claimed run succeeded."""
    result = None if body.result is None else encode_json(body.result)
    limit = api.settings.max_result_bytes
    if result is not None and len(result.encode()) > limit:
        raise UsageError(
            f"The result is {len(result.encode())} bytes of JSON and {limit} are kept: "
            "keep it elsewhere and report a reference to it.",
            "/result",
        )
    return _settled(id, await api.pulled.complete(api.tenant, run_key(id), body.token, result))


@routes.post("/runs/{id}/fail", scope="work")
async def fail_run(api: Api, id: str, body: FailRequest) -> SettledRun:  # noqa: A002 - as above
    """Report that the attempt failed; the job's definition says whether there is another."""
    failed = Failed(body.error, body.retryable, retry_after=body.retry_after)
    settled = await api.pulled.fail(api.tenant, run_key(id), body.token, failed)
    if settled.wait is not None:
        api.desk.wake_in(settled.wait)
    return _settled(id, settled)


def _wanted(queue: str, body: ClaimRequest) -> Wanted:
    if body.functions is not None and "python" not in body.targets:
        raise UsageError(
            "functions are given, but targets has no python: add it, or leave functions out.", "/functions"
        )
    has = {"": "http" in body.targets, "shell": "shell" in body.targets}
    # A worker that pulls is a process of its own already.
    names = tuple(sorted(f"{kind}:{name}" for kind in ("python", "process") for name in set(body.functions or ())))
    kinds = tuple(need for need, wanted in has.items() if wanted)
    return Wanted(queue, kinds + names, "python" in body.targets and body.functions is None)


async def _hand_out(api: Api, pulled: Sequence[Pulled]) -> list[ClaimedRun]:
    """The claim is committed, so each run is delivered, ended or given back by itself: one that raised here would take
    the others with it, and all would be claimed again when their leases have run out."""
    runs: list[ClaimedRun] = []
    unread: list[Pulled] = []
    away: DetentError | None = None
    for each in pulled:
        try:
            if away is not None and each.claim.key.manual:  # it would wait as long for the same answer
                raise away
            run = await _claimed(api, each)
        except (Unavailable, OutcomeUnknown) as error:
            away = error
            unread.append(each)
        except Exception as error:
            await _end(api, each.claim, f"This run cannot be handed to a worker: {describe(error)}")
        else:
            runs += [run] if run is not None else []
    await api.desk.put_back(unread)
    if away is not None and not runs:
        raise away  # the worker is told to wait, and not that there is nothing
    api.pulled.started(len(runs))
    return runs


async def _end(api: Api, claim: Claim, error: str) -> None:
    """A run that no worker can be given. Where that cannot be written either, it ends when its lease has run out often
    enough."""
    try:
        await api.pulled.fail(api.tenant, claim.key, claim.token, Failed(error, retryable=False))
    except Exception as failure:
        facts = transitions.facts_of(claim, None)
        log.error("a run that cannot be handed out is not ended", **facts, said=error, error=describe(failure))


async def _claimed(api: Api, pulled: Pulled) -> ClaimedRun | None:
    """None: what was to be done is not known any more, and the run is ended for that."""
    claim = pulled.claim
    definition = await with_own_payload(api.store, claim, pulled.definition, pool=PoolName.PULL)
    if definition is None:
        await _end(api, claim, "The job's definition is gone, or this version cannot read it.")
        return None
    call = call_of(claim, definition)
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


def _settled(text: str, settled: Settled) -> SettledRun:
    wait = None if settled.wait is None else settled.wait.total_seconds()
    return SettledRun(id=run_id(run_key(text)), status=settled.status, retry_in_seconds=wait)
