"""Topic targets: messages per second of runs through the topic runner, beside the bare client in the same run.

Both send the same messages to the same broker and wait for its acknowledgements. They take turns every few hundred
messages, so that other load on the machine slows both. The bare client sends each turn as one batch of messages that
are built already; detent makes one call of the target per message, builds it, and forms the batches itself.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import process_time
from typing import Any, NamedTuple

from yarl import URL

from detent.devtools.bench.bare_clients import AWS, BARE
from detent.devtools.bench.broker_servers import serving
from detent.domain.job import TargetCredentials, TopicTarget
from detent.domain.run import Call, Succeeded
from detent.domain.target_access import PRIVATE_TOO
from detent.domain.topics import protocol_of
from detent.errors import Unavailable
from detent.runtime.clock import monotonic
from detent.targets.policies import FixedPolicy
from detent.targets.topics.messages import message_of
from detent.targets.topics.runner import TopicTargetRunner

PAYLOAD = {"order": 1234, "text": "hello"}
TOPIC = "detent-bench"
# moto takes a few hundred messages per second: at most so many messages, and so many at once.
SLOW = {"sqs": (100, 50)}


class _Sender(NamedTuple):
    """One side. `prepared` is not measured."""

    prepared: Callable[[list[Call]], Sequence[Any]]
    send: Callable[[Any], Awaitable[None]]
    side: TopicSide


@dataclass
class TopicSide:
    """What one of the two did, round by round; CPU is that of this process."""

    messages_per_second: list[float] = field(default_factory=list)
    cpu_microseconds: list[float] = field(default_factory=list)


@dataclass
class BrokerFigures:
    broker: str
    bare: TopicSide = field(default_factory=TopicSide)
    target: TopicSide = field(default_factory=TopicSide)
    ratio: float = 0.0
    """Medians of the rounds: of the rates, and of CPU per message."""
    cpu_ratio: float = 0.0


@dataclass
class TopicsResult:
    messages: int
    at_once: int
    brokers: list[BrokerFigures]
    missing: list[str]
    """Brokers that are not installed."""


async def bench_topics(
    brokers: Sequence[str], messages: int, at_once: int, rounds: int, progress: Callable[[int], None]
) -> TopicsResult:
    """`progress` counts messages of both sides: in all twice `messages` times `rounds` for each broker."""
    result = TopicsResult(messages, at_once, [], [])
    done = 0
    for name in brokers:
        async with serving(name) as url:
            if url is None:
                result.missing.append(name)
            else:
                most, most_at_once = SLOW.get(name, (messages, at_once))
                plan = min(messages, most), min(at_once, most_at_once)
                result.brokers.append(await _measure(name, url, *plan, rounds))
        done += 2 * messages * rounds
        progress(done)
    return result


async def _measure(name: str, url: str, messages: int, at_once: int, rounds: int) -> BrokerFigures:
    figures = BrokerFigures(name)
    runner = TopicTargetRunner(FixedPolicy(PRIVATE_TOO))
    calls = _Calls(url)
    try:
        async with BARE[protocol_of(url)](URL(url), TOPIC) as send_many:

            async def run_all(batch: Sequence[Call]) -> None:
                for outcome in await asyncio.gather(*(runner(call) for call in batch)):
                    if not isinstance(outcome, Succeeded):
                        raise Unavailable(f"A message of the measurement was not sent: {outcome}.")

            bare = _Sender(lambda batch: [message_of(call) for call in batch], send_many, figures.bare)
            sides = [bare, _Sender(lambda batch: batch, run_all, figures.target)]
            for _ in range(rounds):
                await _round(sides, calls, messages, at_once)
                sides.reverse()
    finally:
        await runner.close()
    mine, theirs = figures.target, figures.bare
    rates = zip(mine.messages_per_second, theirs.messages_per_second, strict=True)
    cpu = zip(mine.cpu_microseconds, theirs.cpu_microseconds, strict=True)
    figures.ratio = statistics.median(ours / raw for ours, raw in rates)
    figures.cpu_ratio = statistics.median(raw / ours for ours, raw in cpu)
    return figures


async def _round(sides: Sequence[_Sender], calls: _Calls, messages: int, at_once: int) -> None:
    seconds, cpu = [0.0] * len(sides), [0.0] * len(sides)
    for sender in sides:
        await sender.send(sender.prepared(calls.take(at_once)))  # the connections are there before the time begins
    for first in range(0, messages, at_once):
        for number, sender in enumerate(sides):
            batch = sender.prepared(calls.take(min(at_once, messages - first)))
            cpu_began, began = process_time(), monotonic()
            await sender.send(batch)
            seconds[number] += monotonic() - began
            cpu[number] += process_time() - cpu_began
    for number, sender in enumerate(sides):
        sender.side.messages_per_second.append(messages / seconds[number])
        sender.side.cpu_microseconds.append(cpu[number] / messages * 1e6)


class _Calls:
    """Each with a key of its own, so that no broker takes one for a duplicate."""

    def __init__(self, url: str) -> None:
        sqs = protocol_of(url) == "sqs"
        credentials = TargetCredentials(AWS["aws_access_key_id"], AWS["aws_secret_access_key"])
        self._target = TopicTarget(url, TOPIC, credentials=credentials) if sqs else TopicTarget(url, TOPIC)
        self._made = 0

    def take(self, count: int) -> list[Call]:
        self._made += count
        return [self._call(number) for number in range(self._made - count, self._made)]

    def _call(self, number: int) -> Call:
        return Call(
            job_id="01987f2e-0000-7000-8000-000000000001",
            job="nightly-report",
            run_id="01987f2e-4c00-7000-8000-0000000004d2",
            scheduled_at=datetime(2026, 3, 1, 6, 30, tzinfo=UTC),
            attempt=1,
            idempotency_key=f"nightly-report:{number}",
            token=8589934593,
            payload=PAYLOAD,
            target=self._target,
            timeout_seconds=300.0,
        )


def as_table(result: TopicsResult) -> list[tuple[str, str]]:
    rounds = len(result.brokers[0].bare.messages_per_second) if result.brokers else 0
    lines = [("messages", f"{rounds} rounds of {result.messages:,} each, {result.at_once:,} at once")]
    for each in result.brokers:
        lines.append((f"{each.broker}: bare client", _figures(each.bare)))
        lines.append((f"{each.broker}: topic target", _figures(each.target)))
        lines.append((f"{each.broker}: ratio", f"{each.ratio:.2f} by rate, {each.cpu_ratio:.2f} by CPU"))
    if result.missing:
        lines.append(("not installed", ", ".join(result.missing)))
    return lines


def _figures(side: TopicSide) -> str:
    rates = side.messages_per_second
    return (
        f"{statistics.median(rates):,.0f} messages/s ({min(rates):,.0f} - {max(rates):,.0f}), "
        f"{statistics.median(side.cpu_microseconds):,.0f} µs of CPU each"
    )
