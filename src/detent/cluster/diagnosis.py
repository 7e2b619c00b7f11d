"""What an operator should check in a cluster, in sentences. Nodes are named by their ids, which are not secret."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from detent.contract.cluster import (
    ClusterHold,
    ClusterNode,
    ClusterPartition,
    Elections,
    FormerNode,
    Lag,
    NodeTakeOver,
)
from detent.domain.circuits import SilentHost, silent_hosts
from detent.domain.counts import plural

CLOCK_OFFSET_MS = 200
OVERDUE_MS = 10_000
WAITING_MS = 60_000
FEW = 5


Kind = Literal["copy", "held", "leaders", "lag", "flapping", "lost", "clocks", "differences", "aside", "circuits"]


class Finding(NamedTuple):
    """A problem for an operator, and its kind; `node` is the node that it concerns."""

    kind: Kind
    sentence: str
    node: str | None = None


class Tenure(NamedTuple):
    """A node, where it ran, and from when or until when."""

    node: int
    host: str
    roles: Sequence[str]
    at: datetime


def problems(
    nodes: Sequence[ClusterNode],
    partitions: Sequence[ClusterPartition],
    elections: Elections,
    held: ClusterHold | None,
    lag: Lag,
    *,
    now: datetime,
    former: Sequence[FormerNode] = (),
    original: bool = True,
    aside: int = 0,
) -> list[str]:
    """`original`: the database has the identity that an operator last confirmed. `aside`: how many jobs are set aside
    because their ticks cannot be fired."""
    found = findings(nodes, partitions, elections, held, lag, now=now, former=former, original=original, aside=aside)
    return [each.sentence for each in found]


def findings(
    nodes: Sequence[ClusterNode],
    partitions: Sequence[ClusterPartition],
    elections: Elections,
    held: ClusterHold | None,
    lag: Lag,
    *,
    now: datetime,
    former: Sequence[FormerNode] = (),
    original: bool = True,
    aside: int = 0,
) -> list[Finding]:
    """As `problems`, each with its kind."""
    present = [node for node in nodes if node.state != "evicted"]
    by_kind: dict[Kind, Iterator[str]] = {
        "copy": _copy(original),
        "held": _held(held),
        "leaders": _leaders(present, partitions),
        "lag": _lag(lag, held),
        "flapping": _flapping(elections),
        "clocks": _clocks(present),
        "differences": _differences(present),
        "aside": iter([set_aside(aside)] if aside else []),
        "circuits": _circuits(present, now),
    }
    found = [Finding(kind, sentence) for kind, sentences in by_kind.items() for sentence in sentences]
    return [*found, *_lost(former)]


def set_aside(jobs: int) -> str:
    """`1 job is set aside: …`"""
    which = "1 job is set aside: its tick" if jobs == 1 else f"{jobs} jobs are set aside: their ticks"
    return f"{which} cannot be fired. The leader retries at least every ten minutes."


def _circuits(present: Sequence[ClusterNode], now: datetime) -> Iterator[str]:
    circuits = [circuit for node in present for circuit in node.circuits or ()]
    yield from silent_sentences([SilentHost(c.host, c.port, c.opened_at, c.next_probe_at) for c in circuits], now)


def silent_sentences(circuits: Sequence[SilentHost], now: datetime) -> Iterator[str]:
    """One sentence for each of the first few hosts, and one sentence for all others."""
    hosts = silent_hosts(circuits)
    for host in hosts[:FEW]:
        yield host.sentence(now)
    if len(hosts) > FEW:
        yield f"{plural(len(hosts) - FEW, 'more host does', 'more hosts do')} not answer."


def _copy(original: bool) -> Iterator[str]:
    if not original:
        yield (
            "The identity of this database has changed. After a fail-over nodes rejoin automatically; they do not join "
            "a copy until it is adopted. Run `detent doctor` to see which it is."
        )


def _held(held: ClusterHold | None) -> Iterator[str]:
    if held is not None:
        yield f"All ticks are held since {held.at:%Y-%m-%d %H:%M:%S} UTC ({held.reason}): no job fires."


def _leaders(present: Sequence[ClusterNode], partitions: Sequence[ClusterPartition]) -> Iterator[str]:
    if not present:
        yield "No node is alive: nothing fires and nothing runs."
        return
    leaders = {node.id for node in present}
    without = [partition.partition for partition in partitions if partition.node not in leaders]
    if without:
        yield f"{_counted(without)} {'has' if len(without) == 1 else 'have'} no leader: their jobs do not fire."
    for role, lack in (("scheduler", "nothing fires"), ("worker", "runs wait, unless workers pull them")):
        if not any(role in node.roles and node.state == "alive" for node in present):
            yield f"There is no {role} that is alive and not draining: {lack}."


def _lag(lag: Lag, held: ClusterHold | None) -> Iterator[str]:
    if held is None and lag.oldest_due_ms is not None and lag.oldest_due_ms > OVERDUE_MS:
        yield f"A tick that was due {lag.oldest_due_ms / 1000:.0f} s ago has not been fired."
    if lag.oldest_ready_ms is not None and lag.oldest_ready_ms > WAITING_MS:
        yield f"A run has been ready for {lag.oldest_ready_ms / 1000:.0f} s and no worker has claimed it."


def _flapping(elections: Elections) -> Iterator[str]:
    if elections.flapping:
        yield (
            f"{_counted(elections.flapping)} changed leaders more than once in the last hour "
            "although no node joined or left."
        )


def _lost(former: Sequence[FormerNode]) -> Iterator[Finding]:
    """Nodes that stopped answering, did not join again and were not dismissed by an operator."""
    lost = [node for node in former if node.state == "lost" and node.back_as is None and not node.dismissed]
    for node in lost[:FEW]:
        yield Finding("lost", lost_sentence(node), node.id)
    if len(lost) > FEW:
        others = plural(len(lost) - FEW, "more node")
        others += " stopped answering in the last day: `detent node list --all` lists them."
        yield Finding("lost", others)


def lost_sentence(node: FormerNode) -> str:
    """When a node stopped answering, and which nodes took over its partitions and runs."""
    began = f"Node {node.id} stopped answering at {node.last_seen_at:%H:%M:%S} UTC"
    takers = [taker for taker in node.taken_over_by if taker.partitions or taker.runs]
    taken, runs = sum(taker.partitions for taker in takers), sum(taker.runs or 0 for taker in takers)
    held = [*([_plural(taken, "partition")] if taken else []), *([_plural(runs, "run")] if runs else [])]
    if not held:
        return f"{began}; it led {_plural(node.partitions, 'partition')} and held no run."
    after = (max(taker.at for taker in takers) - node.last_seen_at).total_seconds()
    return f"{began}; {_named(takers)} took over its {' and '.join(held)} after {after:.1f} s."


def _named(takers: Sequence[NodeTakeOver]) -> str:
    names = [taker.node for taker in takers]
    return f"node {names[0]}" if len(names) == 1 else f"nodes {', '.join(names[:-1])} and {names[-1]}"


def _plural(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count in (0, 1) else 's'}"


def replacements(lost: Sequence[Tenure], present: Sequence[Tenure]) -> dict[int, int]:
    """Which node replaces a lost one: the first that joined on the same host with the same roles after the last
    heartbeat of the lost one. Each replaces only one: of two lost nodes and one that joined, one is still missing."""
    found: dict[int, int] = {}
    free = sorted(present, key=lambda each: each.at)
    for gone in sorted(lost, key=lambda each: each.at):
        for each in free:
            if each.at > gone.at and (each.host, set(each.roles)) == (gone.host, set(gone.roles)):
                found[gone.node] = each.node
                free.remove(each)
                break
    return found


def _clocks(present: Sequence[ClusterNode]) -> Iterator[str]:
    for node in present:
        if abs(node.clock_offset_ms) > CLOCK_OFFSET_MS:
            side = "ahead of" if node.clock_offset_ms > 0 else "behind"
            offset = abs(node.clock_offset_ms)
            length = f"{offset:.0f} ms" if offset < 10_000 else f"{offset / 1000:.0f} s"
            yield f"The clock of node {node.id} is {length} {side} the database's clock, which decides when ticks fire."


def _differences(present: Sequence[ClusterNode]) -> Iterator[str]:
    versions = sorted({node.version for node in present})
    if len(versions) > 1:
        yield f"Nodes run different versions of detent: {', '.join(versions)}."
    zones = sorted({node.tzdata for node in present})
    if len(zones) > 1:
        yield f"Nodes have different time zone data and may compute different next ticks: {', '.join(zones)}."


def _counted(partitions: Sequence[int]) -> str:
    """`Partition 7`, `Partitions 1, 2 and 3`, `86 partitions`"""
    if len(partitions) == 1:
        return f"Partition {partitions[0]}"
    if len(partitions) <= FEW:
        return f"Partitions {', '.join(map(str, partitions[:-1]))} and {partitions[-1]}"
    return f"{len(partitions)} partitions"
