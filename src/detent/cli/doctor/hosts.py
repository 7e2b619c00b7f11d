"""Hosts that do not answer: their circuits are open on live nodes, and the runs that call them wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from detent.cli.doctor.results import Case, CheckResult, number, some
from detent.cluster.diagnosis import silent_sentences
from detent.domain.circuits import SilentHost, silent_hosts
from detent.domain.target_url import calls_host
from detent.store import sql
from detent.store.db import Row

# A run that is put off returns within the pause of its host and the time over which the runs of a host are spread.
PUT_OFF = timedelta(minutes=2)
COUNTED = 100_000
ADVICE = "Check that host. Its runs start when it answers: cancel those that are no longer wanted."


def check_hosts(circuits: Sequence[Row]) -> Iterator[CheckResult]:
    if circuits:
        for sentence in silent_sentences(_hosts(circuits), circuits[0]["now"]):
            yield CheckResult("hosts", "warn", sentence, ADVICE)


async def waiting(case: Case) -> None:
    """The runs that wait for such a host."""
    circuits = await case.doctor.ask(sql.doctor.CIRCUITS)
    if not circuits:
        return
    tenants = sorted({row["tenant"] for row in circuits})
    targets = await case.doctor.ask(sql.doctor.WAITING_TARGETS, tenants, case.number, COUNTED, PUT_OFF)
    for host in silent_hosts(_hosts(circuits)):
        which = [row for row in circuits if (row["host"], row["port"]) == (host.host, host.port)]
        called = [row for row in targets if _called_by(row, which)]
        if called:
            runs, jobs = sum(row["runs"] for row in called), sum(row["jobs"] for row in called)
            names = some([name for row in called for name in row["names"]][:3], jobs)
            found = f"{number(runs, 'run', 'wait')} for a host ({names}). {host.sentence(which[0]['now'])}"
            error = which[0]["error"]
            case.add("warn", found, f"{ADVICE} The last call failed: {error}" if error else ADVICE)


async def hosts_of_skipped(case: Case, since: timedelta) -> list[str]:
    """The hosts whose runs kept later ticks of their jobs from running, and that still do not answer."""
    circuits = await case.doctor.ask(sql.doctor.CIRCUITS)
    if not circuits:
        return []
    targets = await case.doctor.ask(sql.doctor.SKIPPED_TARGETS, since, case.number)
    return [host.peer for host in silent_hosts(_hosts(row for row in circuits if _called(row, targets)))]


def _called(circuit: Row, targets: Sequence[Row]) -> bool:
    return any(_called_by(target, [circuit]) for target in targets)


def _called_by(target: Row, circuits: Iterable[Row]) -> bool:
    """Whether a job with this target calls the host of one of these circuits, which belong to a tenant."""
    return target["url"] is not None and any(
        target["tenant"] == circuit["tenant"] and calls_host(target["url"], circuit["host"], circuit["port"])
        for circuit in circuits
    )


def _hosts(circuits: Iterable[Row]) -> list[SilentHost]:
    return [SilentHost(row["host"], row["port"], row["opened_at"], row["next_probe_at"]) for row in circuits]
