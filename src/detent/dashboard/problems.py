"""Problems that need an operator, each with advice: for the Problems page, the overview's banner, and the badge in the
navigation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from detent.cluster import diagnosis
from detent.contract.cluster import Cluster
from detent.dashboard.figures import last_hour
from detent.dashboard.incidents import OpenIncident, describe_incident
from detent.dashboard.page import PageRequest
from detent.domain.counts import plural
from detent.runtime.clock import monotonic, wall
from detent.store.jobs import DEFAULT_TENANT

LATE_SECONDS = 5.0
LARGE_BACKLOG = 1_000
SHOWN = 20
FRESH_SECONDS = 2.0


class Advice(NamedTuple):
    title: str
    do: str
    command: str


ADVICE: dict[str, Advice] = {
    "copy": Advice(
        "The identity of the database has changed",
        "Find out whether this is the original after a failover or a copy. Adopt it only if it is the original.",
        "detent doctor",
    ),
    "held": Advice(
        "All ticks are paused",
        "Resume when the reason no longer applies. Ticks that were due during the pause then run late or are recorded "
        "as missed, as each job's settings say.",
        "detent resume --all",
    ),
    "leaders": Advice(
        "No leader or no worker",
        "Start a node with the missing role, or find out why the others stopped. After a crash, another node takes "
        "over within the lease time.",
        "detent serve",
    ),
    "lag": Advice(
        "Ticks or runs are waiting",
        "Check whether workers serve the queue, whether they are at full capacity, and whether a limit holds runs "
        "back.",
        "detent queue list",
    ),
    "circuits": Advice(
        "A host does not answer",
        "Find out why: its runs wait, and start when it answers again. Cancel those that are no longer wanted.",
        "detent doctor",
    ),
    "flapping": Advice(
        "Partitions change leaders repeatedly",
        "A node repeatedly loses its lease. Check its load, its connection to the database, and whether it freezes.",
        "detent node list",
    ),
    "lost": Advice(
        "A node stopped answering",
        "Other nodes took over its work. Check its log and its machine, and start it again. If it will not come back, "
        "dismiss this problem; it disappears after a day.",
        "detent node list --all",
    ),
    "clocks": Advice(
        "Clock offset of a node",
        "Ticks follow the database's clock and stay correct, but times in that machine's logs are wrong: fix its NTP.",
        "timedatectl timesync-status",
    ),
    "differences": Advice(
        "Nodes have different versions",
        "This is normal during a rolling upgrade. Otherwise bring all nodes to the same version and time zone data.",
        "detent node list",
    ),
    "missed": Advice(
        "Ticks were missed",
        "No node fired them in time: all nodes were down, or all ticks were paused. Backfill them if they matter.",
        "detent job backfill JOB --from TIME",
    ),
    "late": Advice(
        "Runs start late",
        "Runs wait for workers, or the database is slow. Check the queues, then the load of the machines.",
        "detent doctor",
    ),
    "dead": Advice(
        "Dead runs",
        "Fix the cause of their errors, then retry them. Each run keeps its idempotency key.",
        "detent dlq list",
    ),
    "backlog": Advice(
        "Many missed ticks are being caught up",
        "They run next to live ticks, at a limited rate. You can inspect and drop them per job.",
        "detent job catchup JOB",
    ),
    "incidents": Advice(
        "Deadline missed",
        "Open the run to see why it failed or still waits. If it never started, check whether nodes are alive and "
        "serve its queue. If the deadline is too short, edit the job. The problem closes when a later tick meets the "
        "deadline, or when the late run starts, or succeeds, after all.",
        "detent incident list --open",
    ),
    "aside": Advice(
        "A job cannot be fired",
        "Its schedule cannot be read, or the database refuses its tick. Upgrade the schedulers if a newer version "
        "wrote the job, or edit it. The leader retries at least every ten minutes.",
        "detent doctor",
    ),
    "readiness": Advice(
        "This process is not ready",
        "Each failed check gives its reason. Load balancers send no requests to this process until it is ready.",
        "curl http://127.0.0.1:8787/readyz?verbose",
    ),
}


class ProblemCard(NamedTuple):
    """`total` counts what the card is about, `more` says that there are more; `incidents` are the newest of them.
    `node` is the lost node."""

    kind: str
    sentence: str
    advice: Advice
    link: str | None = None
    urgent: bool = True
    total: int = 1
    more: bool = False
    incidents: tuple[OpenIncident, ...] = ()
    node: str | None = None


class ProblemReport(NamedTuple):
    """The problems, and the data in which they were found."""

    found: list[ProblemCard]
    cluster: Cluster
    figures: dict[str, Any]
    dead: tuple[int, bool]

    @property
    def alarms(self) -> str:
        """The text of the badge: how many urgent problems there are; empty if none."""
        urgent = [problem for problem in self.found if problem.urgent]
        count = sum(problem.total for problem in urgent)
        return f"{count:,}{'+' if any(problem.more for problem in urgent) else ''}" if count else ""


async def find_problems(page: PageRequest) -> ProblemReport:
    cluster = await page.api.cluster.describe(operator=page.tenant == DEFAULT_TENANT, throughput=False)
    figures = await last_hour(page)
    dead = await page.api.store.overview.dead(tenant=page.tenant)
    found = [*of_cluster(cluster), *await _of_readiness(page), *await _of_incidents(page)]
    found += await _of_set_aside(page)
    found += await _of_work(page, figures, dead)
    return ProblemReport(sorted(found, key=lambda problem: not problem.urgent), cluster, figures, dead)


def of_cluster(cluster: Cluster) -> list[ProblemCard]:
    now = wall()
    copy = diagnosis.findings([], [], cluster.elections, None, cluster.lag, now=now, original=False)[0].sentence
    found = diagnosis.findings(
        cluster.nodes, cluster.partitions, cluster.elections, cluster.held, cluster.lag,
        now=now, former=cluster.former_nodes, original=copy not in cluster.problems,
    )  # fmt: skip
    minor = {"clocks", "differences", "lost", "circuits"}
    return [
        ProblemCard(each.kind, each.sentence, ADVICE[each.kind], "/cluster", each.kind not in minor, node=each.node)
        for each in found
    ]


async def _of_readiness(page: PageRequest) -> list[ProblemCard]:
    checks = await page.api.readiness()
    return [
        ProblemCard("readiness", f"{name}: {check.why}", ADVICE["readiness"], None, check.needed)
        for name, check in checks.items()
        if not check.ok and name not in ("ticks", "original", "clock", "jobs")  # the cluster's problems cover these
    ]


async def _of_incidents(page: PageRequest) -> list[ProblemCard]:
    store = page.api.store.expectations
    count, more = await store.count_open(tenant=page.tenant)
    if not count:
        return []
    shown = await store.incidents(tenant=page.tenant, before=None, limit=SHOWN, only_open=True)
    number = f"{count:,}{' or more' if more else ''}"
    sentence = f"{number} missed {'deadline is' if count == 1 else 'deadlines are'} unresolved."
    described = tuple(describe_incident(incident) for incident in shown)
    return [ProblemCard("incidents", sentence, ADVICE["incidents"], None, True, count, more, described)]


async def _of_set_aside(page: PageRequest) -> list[ProblemCard]:
    """One card per job, up to SHOWN; a tenant sees only its own jobs."""
    jobs = await page.api.store.set_aside.list(SHOWN + 1, tenant=page.tenant)
    found = [
        ProblemCard("aside", f"{job.name}: {job.why}", ADVICE["aside"], f"/jobs/{job.id}", True) for job in jobs[:SHOWN]
    ]
    if len(jobs) > SHOWN:
        found.append(
            ProblemCard("aside", f"More than {SHOWN} jobs cannot be fired.", ADVICE["aside"], None, True, more=True)
        )
    return found


async def _of_work(page: PageRequest, figures: dict[str, Any], dead: tuple[int, bool]) -> list[ProblemCard]:
    backlog, jobs = await page.api.store.overview.backlog(tenant=page.tenant)
    found = []
    if figures.get("missed"):
        missed = f"{plural(figures['missed'], 'tick was', 'ticks were')} missed in the last hour."
        found.append(ProblemCard("missed", missed, ADVICE["missed"], "/runs?search=status%3Amissed"))
    if figures["p99"] is not None and figures["p99"] > LATE_SECONDS:
        late = f"In the last hour, 1% of runs started more than {figures['p99']:.0f} s after their tick."
        found.append(ProblemCard("late", late, ADVICE["late"], "/cluster", False))
    if dead[0]:
        number, need = f"{dead[0]:,}{' or more' if dead[1] else ''}", "run needs" if dead[0] == 1 else "runs need"
        found.append(ProblemCard("dead", f"{number} dead {need} action.", ADVICE["dead"], "/dead-letters", False))
    if backlog >= LARGE_BACKLOG:
        behind = f"{plural(backlog, 'missed tick')} of {plural(jobs, 'job')} left to run."
        found.append(ProblemCard("backlog", behind, ADVICE["backlog"], "/jobs", False))
    return found


class AlarmCount:
    """The badge on every page, computed once per tenant and kept for FRESH_SECONDS."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._known: dict[int, tuple[float, str]] = {}

    async def of(self, page: PageRequest) -> str:
        at, text = self._known.get(page.tenant, (0.0, ""))
        now = self._clock()
        if page.tenant not in self._known or now >= at + FRESH_SECONDS:
            text = await self._count(page)
            self._known[page.tenant] = (now, text)
        return text

    async def _count(self, page: PageRequest) -> str:
        return (await find_problems(page)).alarms

    def reset(self) -> None:
        """Recompute next time: data changed."""
        self._known.clear()
