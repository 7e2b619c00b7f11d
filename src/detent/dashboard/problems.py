"""What somebody should look at, each with what to do about it: for the page of problems, the strip of the overview, and
the number beside the link that leads there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from detent.cluster import diagnosis
from detent.contract.cluster import Cluster
from detent.dashboard.figures import last_hour
from detent.dashboard.incidents import OpenIncident, told
from detent.dashboard.page import Page
from detent.runtime.clock import monotonic
from detent.store.jobs import DEFAULT_TENANT

LATE_SECONDS = 5.0
MUCH_BACKLOG = 1_000
SHOWN = 20
FRESH_SECONDS = 2.0


class Advice(NamedTuple):
    title: str
    do: str
    command: str


ADVICE: dict[str, Advice] = {
    "copy": Advice(
        "The database is another than it was",
        "Find out whether this is the original after a fail-over or a copy. Only an original should be adopted.",
        "detent doctor",
    ),
    "held": Advice(
        "Everything is paused",
        "Resume when the reason is gone. Ticks of the pause are late or missed, by each job's own rule.",
        "detent resume --all",
    ),
    "leaders": Advice(
        "Nobody leads, or nobody works",
        "Start a node with that role, or look why the others have ended. One that died is replaced within its lease.",
        "detent serve",
    ),
    "lag": Advice(
        "Work waits",
        "Look whether workers serve the queue that waits, whether they are full, and whether a limit holds runs back.",
        "detent queue list",
    ),
    "flapping": Advice(
        "Leadership moves without a reason",
        "A node loses its lease again and again: look at its load, its pauses and its way to the database.",
        "detent node list",
    ),
    "lost": Advice(
        "A node stopped answering",
        "Others took over what it held. Look at its log and its machine, and start it again. If it is not to come "
        "back, dismiss this; it goes by itself after a day.",
        "detent node list --all",
    ),
    "clocks": Advice(
        "A clock is off",
        "Ticks go by the database's clock and are right all the same; logs of that machine are not. Mend its NTP.",
        "timedatectl timesync-status",
    ),
    "differences": Advice(
        "Nodes are not alike",
        "While an upgrade is rolling this is as it should be. Otherwise bring all to the same version and zone data.",
        "detent node list",
    ),
    "missed": Advice(
        "Ticks were missed",
        "Nobody fired them in time: all nodes were down, or the cluster was paused. Run them now, if they matter.",
        "detent job backfill JOB --from TIME",
    ),
    "late": Advice(
        "Runs start late",
        "Fires wait for workers, or the database is slow. Look at the queues, then at what the machine does.",
        "detent doctor",
    ),
    "dead": Advice(
        "Dead runs need action",
        "Fix what their errors name, then retry them: each keeps the idempotency key that it had.",
        "detent dlq list",
    ),
    "backlog": Advice(
        "Much is being caught up with",
        "It is released beside live ticks, at a rate. It can be looked at and dropped, job by job.",
        "detent job catchup JOB",
    ),
    "incidents": Advice(
        "Deadline missed",
        "Open the run to see why it failed or still waits. One that never began: look whether nodes work and its queue "
        "is served. If too much is expected of the job, edit it. It is over with the next tick that is as expected.",
        "detent incident list --open",
    ),
    "aside": Advice(
        "A job cannot be fired",
        "Its schedule cannot be read, or the database refuses its tick. Upgrade the schedulers if a newer version "
        "wrote the job, or edit it. The leader tries again by itself, at least every ten minutes.",
        "detent doctor",
    ),
    "readiness": Advice(
        "This process is not ready",
        "It says of each check why. A load balancer sends nothing here meanwhile.",
        "curl http://127.0.0.1:8787/readyz?verbose",
    ),
}


class Problem(NamedTuple):
    """`things`: so many, of which `incidents` are some; `more`: they are not all. `node`: the one that was lost."""

    kind: str
    sentence: str
    advice: Advice
    link: str | None = None
    grave: bool = True
    things: int = 1
    more: bool = False
    incidents: tuple[OpenIncident, ...] = ()
    node: str | None = None


class Looked(NamedTuple):
    """What was found, and what it was found in."""

    found: list[Problem]
    cluster: Cluster
    figures: dict[str, Any]
    dead: tuple[int, bool]

    @property
    def alarms(self) -> str:
        """How many things somebody should act on, as it is written beside the link."""
        grave = [problem for problem in self.found if problem.grave]
        count = sum(problem.things for problem in grave)
        return f"{count:,}{'+' if any(problem.more for problem in grave) else ''}" if count else ""


async def look_for_problems(page: Page) -> Looked:
    cluster = await page.api.cluster.describe(operator=page.tenant == DEFAULT_TENANT, throughput=False)
    figures = await last_hour(page)
    dead = await page.api.store.overview.dead(tenant=page.tenant)
    found = [*of_cluster(cluster), *await _of_readiness(page), *await _of_incidents(page)]
    found += await _of_set_aside(page)
    found += await _of_work(page, figures, dead)
    return Looked(sorted(found, key=lambda problem: not problem.grave), cluster, figures, dead)


def of_cluster(cluster: Cluster) -> list[Problem]:
    copied = diagnosis.findings([], [], cluster.elections, None, cluster.lag, original=False)[0].sentence
    found = diagnosis.findings(
        cluster.nodes, cluster.partitions, cluster.elections, cluster.held, cluster.lag,
        former=cluster.former_nodes, original=copied not in cluster.problems,
    )  # fmt: skip
    mild = {"clocks", "differences", "lost"}
    return [
        Problem(each.kind, each.sentence, ADVICE[each.kind], "/cluster", each.kind not in mild, node=each.node)
        for each in found
    ]


async def _of_readiness(page: Page) -> list[Problem]:
    checks = await page.api.readiness()
    return [
        Problem("readiness", f"{name}: {check.why}", ADVICE["readiness"], None, check.needed)
        for name, check in checks.items()
        if not check.ok and name not in ("ticks", "original", "clock", "jobs")  # which the cluster's own problems tell
    ]


async def _of_incidents(page: Page) -> list[Problem]:
    store = page.api.store.expectations
    count, more = await store.count_open(tenant=page.tenant)
    if not count:
        return []
    shown = await store.incidents(tenant=page.tenant, before=None, limit=SHOWN, only_open=True)
    number = f"{count:,}{' or more' if more else ''}"
    sentence = f"{number} {'expectation is' if count == 1 else 'expectations are'} not met."
    told_of = tuple(told(incident) for incident in shown)
    return [Problem("incidents", sentence, ADVICE["incidents"], None, True, count, more, told_of)]


async def _of_set_aside(page: Page) -> list[Problem]:
    """Each of the first so many, with its own link; a tenant sees its own jobs."""
    jobs = await page.api.store.set_aside.list(SHOWN + 1, tenant=page.tenant)
    found = [
        Problem("aside", f"{job.name}: {job.why}", ADVICE["aside"], f"/jobs/{job.id}", True) for job in jobs[:SHOWN]
    ]
    if len(jobs) > SHOWN:
        found.append(
            Problem("aside", f"More than {SHOWN} jobs cannot be fired.", ADVICE["aside"], None, True, more=True)
        )
    return found


async def _of_work(page: Page, figures: dict[str, Any], dead: tuple[int, bool]) -> list[Problem]:
    backlog, jobs = await page.api.store.overview.backlog(tenant=page.tenant)
    found = []
    if figures.get("missed"):
        missed = f"{figures['missed']:,} ticks were recorded as missed in the last hour."
        found.append(Problem("missed", missed, ADVICE["missed"], "/runs?search=status%3Amissed"))
    if figures["p99"] is not None and figures["p99"] > LATE_SECONDS:
        late = f"One run in a hundred started more than {figures['p99']:.0f} s after its tick, in the last hour."
        found.append(Problem("late", late, ADVICE["late"], "/cluster", False))
    if dead[0]:
        number, need = f"{dead[0]:,}{' or more' if dead[1] else ''}", "run needs" if dead[0] == 1 else "runs need"
        found.append(Problem("dead", f"{number} dead {need} action.", ADVICE["dead"], "/dead-letters", False))
    if backlog >= MUCH_BACKLOG:
        behind = f"{backlog:,} ticks of {jobs:,} jobs are still to be caught up with."
        found.append(Problem("backlog", behind, ADVICE["backlog"], "/jobs", False))
    return found


class Alarms:
    """The number beside the link, on every page: looked for once in a while for all who look."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._known: dict[int, tuple[float, str]] = {}

    async def of(self, page: Page) -> str:
        at, text = self._known.get(page.tenant, (0.0, ""))
        now = self._clock()
        if page.tenant not in self._known or now >= at + FRESH_SECONDS:
            text = await self._look(page)
            self._known[page.tenant] = (now, text)
        return text

    async def _look(self, page: Page) -> str:
        return (await look_for_problems(page)).alarms

    def forget(self) -> None:
        """Somebody changed something."""
        self._known.clear()
