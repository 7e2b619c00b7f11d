"""Which jobs and runs no worker serves, and what a run that nothing has claimed waits for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from detent.contract.run import Run
from detent.domain.callbacks import WORKER_PREFIX
from detent.domain.circuits import SilentHost
from detent.domain.identity import RunKey
from detent.domain.serving import Unserved, WaitingPlace, place_of, unserved_sentence
from detent.domain.states import RunStatus
from detent.domain.target_url import calls_host
from detent.jobs.explanation import span
from detent.jobs.run_explanation import RunFacts, RunNarrator
from detent.runtime.arithmetic import compute
from detent.store import Store
from detent.store.db import PoolName, Row
from detent.store.jobs import DEFAULT_TENANT
from detent.store.pull import CallbackWait

MAX_PLACES = 200
HELD = "The cluster is paused, and no run starts: `detent resume` lets all go on."
SUSPENDED = "The tenant is suspended by an administrator of the cluster."
BEHIND = "It waits for the previous run of its job to end."


class ServingCheck:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def unserved(
        self, places: Iterable[WaitingPlace], *, tenant: int = DEFAULT_TENANT
    ) -> dict[WaitingPlace, Unserved]:
        """Those that no live worker serves. Of very many, only some are looked at."""
        some = list(dict.fromkeys(places))[:MAX_PLACES]
        return {found.place: found for found in await self._store.nodes.unserved(tenant, some)} if some else {}

    async def lack(self, place: WaitingPlace, *, tenant: int = DEFAULT_TENANT, connect: str = "") -> str | None:
        """What to start, if no worker serves this place; `connect` as in `unserved_sentence`."""
        found = (await self.unserved([place], tenant=tenant)).get(place)
        return None if found is None else await self.sentence(found, tenant=tenant, connect=connect)

    async def sentence(self, lack: Unserved, *, tenant: int = DEFAULT_TENANT, connect: str = "") -> str:
        name = (
            await self._store.tenants.name_of(tenant, pool=PoolName.REQUEST)
            if lack.place.needs == "shell" or lack.place.needs.startswith("celery:")
            else ""
        )
        # Similar names are looked for, which takes tens of milliseconds where workers have very many functions.
        return await compute(unserved_sentence, lack, tenant=name, connect=connect)

    async def run_facts(self, key: RunKey, *, tenant: int = DEFAULT_TENANT, connect: str = "") -> RunFacts:
        """What is recorded about an on-demand run, and which worker is missing."""
        facts = RunFacts(*(await self._store.explanations.on_demand(key)).values())
        if facts.place is None or facts.owner is not None or facts.queue is None:
            return facts
        place = place_of(facts.queue, facts.needs or "")
        return facts._replace(lack=await self.lack(place, tenant=tenant, connect=connect))

    async def put_off(self, job: int, now: datetime, not_before: datetime, *, first: bool) -> str | None:
        """Why a run of this job that waits for a time does so, if it is because the host that the job calls does not
        answer, or has as many calls as the job allows. `first`: it waits for no retry."""
        for circuit in await self._store.nodes.circuits(job):
            if circuit.url is not None and calls_host(circuit.url, circuit.host, circuit.port):
                host = SilentHost(circuit.host, circuit.port, circuit.opened_at, circuit.next_probe_at)
                return (
                    f"{host.peer} does not answer since {host.opened_at:%H:%M:%S} UTC: runs wait, and use up no"
                    f" attempt, until it does. {host.next_call(now)}; this run may start in {span(not_before - now)}."
                    f" The last call failed: {circuit.error}"
                )
        limit = await self._store.explanations.host_limit(job) if first else None
        return None if limit is None else _host_limit_sentence(limit["url"], limit["calls"], not_before - now)

    async def callback_wait(self, run: Run, key: RunKey, *, tenant: int = DEFAULT_TENANT) -> str | None:
        """Since when and until when a run waits for the callback of its target; None: it does not."""
        if run.node is None or not run.node.startswith(WORKER_PREFIX):
            return None
        wait = await self._store.pull.callback_wait(key, tenant)
        return None if wait is None else _callback_sentence(wait)

    async def waiting_for(
        self, run: Run, key: RunKey, *, tenant: int = DEFAULT_TENANT, connect: str = ""
    ) -> str | None:
        """What an unfinished run waits for that no worker has claimed, or that its target has accepted; None: it runs,
        or has ended."""
        if run.status is RunStatus.RUNNING:
            return await self.callback_wait(run, key, tenant=tenant)
        if run.status not in (RunStatus.PENDING, RunStatus.RETRYING):
            return None
        if key.on_demand:
            facts = await self.run_facts(key, tenant=tenant, connect=connect)
            waits = facts.place is not None and facts.owner is None
            if waits and facts.not_before is not None and facts.not_before > facts.now and not facts.held:
                returned = facts.not_before > run.scheduled_at and facts.attempt == 1 and not facts.paced
                why = await self.put_off(key.job, facts.now, facts.not_before, first=returned)
                if why is not None:
                    return why
            return RunNarrator(run, facts).waits() if waits else None
        row = await self._store.explanations.wait(key)
        if row is None:
            return None
        if row["not_before"] > row["now"] and not (row["held"] or row["suspended"] or row["behind"]):
            why = await self.put_off(key.job, row["now"], row["not_before"], first=row["attempt"] == 1)
            return why or _before_workers(row)
        place = place_of(row["queue"], row["needs"])
        return _before_workers(row) or await self.lack(place, tenant=tenant, connect=connect) or _in_line(row)


def _host_limit_sentence(url: str, calls: int, wait: timedelta) -> str:
    most = "one call" if calls == 1 else f"{calls} calls"
    return (
        f"It waits for its host: a worker makes at most {most} to {urlsplit(url).netloc} at the same time, the "
        f"host_concurrency of the job. It uses up no attempt, and may start in {span(wait)}."
    )


def _callback_sentence(wait: CallbackWait) -> str:
    since = f"Its target accepted it {span(wait.now - wait.accepted_at)} ago, at {_utc(wait.accepted_at)}"
    until = f"heartbeats or the end of the run must come by {_utc(wait.lease_until)}"
    return f"{since}, and reports its end by a callback: {until}, the end by {_utc(wait.ends_at)}."


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _before_workers(row: Row) -> str | None:
    """What keeps a run from starting, whatever workers there are."""
    if row["held"]:
        return HELD
    if row["suspended"]:
        return SUSPENDED
    if row["behind"]:
        return BEHIND
    if row["not_before"] > row["now"]:
        wait = span(row["not_before"] - row["now"])
        if row["attempt"] == 1:
            return f"It was returned to its queue before its target was called, and may start in {wait}."
        return f"Its next attempt, number {row['attempt']}, may start in {wait}."
    return stopped_sentence(row["queue"]) if row["stopped"] else None


def stopped_sentence(queue: str) -> str:
    return f"A limit of 0 stops the queue {queue!r} or its tenant: see `detent queue list` and `detent tenant list`."


def _in_line(row: Row) -> str:
    return f"It waits for a free worker that serves the queue {row['queue']!r}."
