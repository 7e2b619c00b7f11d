"""What somebody should look at, each with what to do about it."""

from __future__ import annotations

from typing import Any, NamedTuple

from detent import diagnosis
from detent.cluster_shapes import Cluster
from detent.dashboard.page import Page, View
from detent.dashboard.views.overview import last_hour
from detent.store.jobs import DEFAULT_TENANT

LATE_SECONDS = 5.0
MUCH_BACKLOG = 1_000


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
        "Runs were given up",
        "Mend what their errors name, then let them go on as themselves, with the key they had.",
        "detent dlq list",
    ),
    "backlog": Advice(
        "Much is being caught up with",
        "It is released beside live ticks, at a rate. It can be looked at and dropped, job by job.",
        "detent job catchup JOB",
    ),
    "readiness": Advice(
        "This process is not ready",
        "It says of each check why. A load balancer sends nothing here meanwhile.",
        "curl http://127.0.0.1:8787/readyz?verbose",
    ),
}


class Problem(NamedTuple):
    kind: str
    sentence: str
    advice: Advice
    link: str | None = None
    grave: bool = True


async def look(page: Page) -> dict[str, Any]:
    cluster = await page.api.store.cluster.look(operator=page.tenant == DEFAULT_TENANT, throughput=False)
    found = [*of_cluster(cluster), *await _of_readiness(page), *await _of_work(page)]
    return {"found": found, "checked": len(ADVICE)}


def of_cluster(cluster: Cluster) -> list[Problem]:
    copied = diagnosis.findings([], [], cluster.elections, None, cluster.lag, original=False)[0].sentence
    found = diagnosis.findings(
        cluster.nodes, cluster.partitions, cluster.elections, cluster.held, cluster.lag,
        original=copied not in cluster.problems,
    )  # fmt: skip
    mild = {"clocks", "differences"}
    return [Problem(each.kind, each.sentence, ADVICE[each.kind], "/cluster", each.kind not in mild) for each in found]


async def _of_readiness(page: Page) -> list[Problem]:
    checks = await page.api.readiness()
    return [
        Problem("readiness", f"{name}: {check.why}", ADVICE["readiness"], None, check.needed)
        for name, check in checks.items()
        if not check.ok and name not in ("ticks", "original", "clock")  # which the cluster's own problems tell
    ]


async def _of_work(page: Page) -> list[Problem]:
    figures = await last_hour(page)
    dead, more = await page.api.store.overview.dead(tenant=page.tenant)
    backlog, jobs = await page.api.store.overview.backlog(tenant=page.tenant)
    found = []
    if figures.get("missed"):
        told = f"{figures['missed']:,} ticks were recorded as missed in the last hour."
        found.append(Problem("missed", told, ADVICE["missed"], "/runs?search=status%3Amissed"))
    if figures["p99"] is not None and figures["p99"] > LATE_SECONDS:
        told = f"One run in a hundred started more than {figures['p99']:.0f} s after its tick, in the last hour."
        found.append(Problem("late", told, ADVICE["late"], "/cluster", False))
    if dead:
        told = f"{dead:,}{' or more' if more else ''} dead {'run waits' if dead == 1 else 'runs wait'} for somebody."
        found.append(Problem("dead", told, ADVICE["dead"], "/dead-letters", False))
    if backlog >= MUCH_BACKLOG:
        told = f"{backlog:,} ticks of {jobs:,} jobs are still to be caught up with."
        found.append(Problem("backlog", told, ADVICE["backlog"], "/jobs", False))
    return found


view = View("problems", "/cluster/problems", look, ("found",))
