"""What somebody should look at in a cluster, in sentences. Nodes are named by their ids, which everybody may see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from detent.cluster_shapes import ClusterNode, ClusterPartition, Elections, Held, Lag

CLOCK_OFFSET_MS = 200
OVERDUE_MS = 10_000
WAITING_MS = 60_000
FEW = 5


Kind = Literal["copy", "held", "leaders", "lag", "flapping", "clocks", "differences", "aside"]


class Finding(NamedTuple):
    """Something that somebody should look at, and of which kind it is."""

    kind: Kind
    sentence: str


def problems(
    nodes: Sequence[ClusterNode],
    partitions: Sequence[ClusterPartition],
    elections: Elections,
    held: Held | None,
    lag: Lag,
    *,
    original: bool = True,
    aside: int = 0,
) -> list[str]:
    """`original`: the database is the one that it was when somebody last made sure of it. `aside`: how many jobs are
    set aside, because their ticks cannot be fired."""
    found = findings(nodes, partitions, elections, held, lag, original=original, aside=aside)
    return [each.sentence for each in found]


def findings(
    nodes: Sequence[ClusterNode],
    partitions: Sequence[ClusterPartition],
    elections: Elections,
    held: Held | None,
    lag: Lag,
    *,
    original: bool = True,
    aside: int = 0,
) -> list[Finding]:
    """As `problems`, each with its kind."""
    present = [node for node in nodes if node.state != "evicted"]
    told: dict[Kind, Iterator[str]] = {
        "copy": _copy(original),
        "held": _held(held),
        "leaders": _leaders(present, partitions),
        "lag": _lag(lag, held),
        "flapping": _flapping(elections),
        "clocks": _clocks(present),
        "differences": _differences(present),
        "aside": iter([set_aside(aside)] if aside else []),
    }
    return [Finding(kind, sentence) for kind, sentences in told.items() for sentence in sentences]


def set_aside(jobs: int) -> str:
    """`1 job is set aside: …`"""
    told = "1 job is set aside: its tick" if jobs == 1 else f"{jobs} jobs are set aside: their ticks"
    return f"{told} cannot be fired. The leader tries again at least every ten minutes."


def _copy(original: bool) -> Iterator[str]:
    if not original:
        yield (
            "This database is not where it was. After a fail-over nodes join again by themselves; a copy does nothing "
            "until it is adopted: `detent doctor` says which it is."
        )


def _held(held: Held | None) -> Iterator[str]:
    if held is not None:
        yield f"Held since {held.at:%Y-%m-%d %H:%M:%S} UTC ({held.reason}): no tick fires anywhere."


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
            yield f"No node that is alive and not draining is a {role}: {lack}."


def _lag(lag: Lag, held: Held | None) -> Iterator[str]:
    if held is None and lag.oldest_due_ms is not None and lag.oldest_due_ms > OVERDUE_MS:
        yield f"A tick that was due {lag.oldest_due_ms / 1000:.0f} s ago has not been fired."
    if lag.oldest_ready_ms is not None and lag.oldest_ready_ms > WAITING_MS:
        yield f"A run has been ready for {lag.oldest_ready_ms / 1000:.0f} s and no worker has claimed it."


def _flapping(elections: Elections) -> Iterator[str]:
    if elections.flapping:
        yield (
            f"{_counted(elections.flapping)} changed hands more than once in the last hour "
            "although no node came or went."
        )


def _clocks(present: Sequence[ClusterNode]) -> Iterator[str]:
    for node in present:
        if abs(node.clock_offset_ms) > CLOCK_OFFSET_MS:
            side = "ahead of" if node.clock_offset_ms > 0 else "behind"
            offset = abs(node.clock_offset_ms)
            told = f"{offset:.0f} ms" if offset < 10_000 else f"{offset / 1000:.0f} s"
            yield f"The clock of node {node.id} is {told} {side} the database's; ticks go by the database's."


def _differences(present: Sequence[ClusterNode]) -> Iterator[str]:
    versions = sorted({node.version for node in present})
    if len(versions) > 1:
        yield f"Nodes run different versions of detent: {', '.join(versions)}."
    zones = sorted({node.tzdata for node in present})
    if len(zones) > 1:
        yield f"Nodes have different zone data, so their next ticks may differ: {', '.join(zones)}."


def _counted(partitions: Sequence[int]) -> str:
    """`Partition 7`, `Partitions 1, 2 and 3`, `86 partitions`"""
    if len(partitions) == 1:
        return f"Partition {partitions[0]}"
    if len(partitions) <= FEW:
        return f"Partitions {', '.join(map(str, partitions[:-1]))} and {partitions[-1]}"
    return f"{len(partitions)} partitions"
