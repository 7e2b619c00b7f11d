"""Compares what a broker holds with the history of its runs. Pure: it knows nothing about the product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

SHOWN = 3
# A run whose workers died too often is dead. It may have a message; it need not.
GIVEN_UP = "given up"


class Delivery(NamedTuple):
    """One broker. `runs`: the statuses of the runs in the history, by id. `messages`: the run of each message."""

    broker: str
    deduplicates: bool
    enqueued: Sequence[str]
    runs: Mapping[str, str]
    messages: Sequence[str]


class DeliveryFigures(NamedTuple):
    broker: str
    runs: int
    given_up: int
    messages: int
    repeated: int


class DeliveryVerdict(NamedTuple):
    violations: Sequence[str]
    untested: Sequence[str]
    figures: Sequence[DeliveryFigures]

    @property
    def word(self) -> str:
        return "violated" if self.violations else "untested" if self.untested else "ok"


def check(deliveries: Sequence[Delivery], kills: int, lost_attempts: int) -> DeliveryVerdict:
    """`lost_attempts`: attempts whose worker died. Without any, nothing was tested."""
    violations = [sentence for delivery in deliveries for sentence in faults(delivery)]
    untested = []
    if not kills:
        untested.append("no worker was killed")
    if not lost_attempts:
        untested.append("no attempt lost its worker")
    return DeliveryVerdict(violations, untested, [figures_of(delivery) for delivery in deliveries])


def faults(delivery: Delivery) -> list[str]:
    counts = Counter(delivery.messages)
    found = {
        "were enqueued and are not in the history": [run for run in delivery.enqueued if run not in delivery.runs],
        "did not succeed": [run for run, status in delivery.runs.items() if status not in ("succeeded", GIVEN_UP)],
        "have no message": [run for run, status in delivery.runs.items() if not counts[run] and status != GIVEN_UP],
        "have a message and are not in the history": [run for run in counts if run not in delivery.runs],
    }
    if delivery.deduplicates:
        found["have more than one message"] = [run for run, count in counts.items() if count > 1]
    return [
        f"{delivery.broker}: {len(runs)} runs {fault}: {', '.join(runs[:SHOWN])}"
        for fault, runs in found.items()
        if runs
    ]


def figures_of(delivery: Delivery) -> DeliveryFigures:
    messages = len(delivery.messages)
    given_up = sum(status == GIVEN_UP for status in delivery.runs.values())
    return DeliveryFigures(
        delivery.broker, len(delivery.runs), given_up, messages, messages - len(set(delivery.messages))
    )
