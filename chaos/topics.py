# ruff: noqa: T201 - printing is the purpose of a script
"""Topic targets while workers are killed: `python -m chaos.topics [--runs N] [--seed N] [--brokers LIST]`.

Runs are enqueued for one task per broker; the workers that send their messages are killed with -9 all the time, also
between the acknowledgement of a broker and the end of the run. In the end every run has succeeded and has a message:
exactly one where the broker deduplicates (NATS, SQS FIFO), at least one elsewhere. Runs that were given up, because
their workers died too often, need not have one.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from tests.support import guardian
from tests.support.deliveries.checker import DeliveryVerdict, check
from tests.support.deliveries.driver import DeliveryRecord, perform
from tests.support.orders.driver import Scale

BROKERS = ("redis", "nats", "rabbitmq", "mosquitto", "sqs-fifo", "kafka")
RUNS = 5000
LIVES = Scale(0, ("n1", "n2", "n3"), (), 1.5, (2.0, 7.0))


def play(brokers: tuple[str, ...], runs: int, seed: int) -> DeliveryRecord:
    guardian.protect()
    print(f"topics: {runs:,} runs for each of {', '.join(brokers)}, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="detent-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # the server's user has to get through when root runs this
        return asyncio.run(perform(folder, brokers, runs, LIVES, seed))


def report(record: DeliveryRecord, verdict: DeliveryVerdict) -> int:
    for line in [*verdict.violations, *verdict.untested]:
        print(f"  {line}")
    print(f"  {'broker':<12}{'runs':>9}{'given up':>10}{'messages':>10}{'repeated':>10}")
    for broker, runs, given_up, messages, repeated in verdict.figures:
        print(f"  {broker:<12}{runs:>9,}{given_up:>10,}{messages:>10,}{repeated:>10,}")
    print(f"  {record.kills} kills, {record.lost_attempts} attempts lost their worker, {record.left} runs left")
    print(f"  verdict: {verdict.word}")
    return 0 if verdict.word == "ok" else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each broker (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of the dice (default: a random one, which is printed)")
    parser.add_argument("--brokers", default=",".join(BROKERS), help="separated by commas (default: %(default)s)")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else secrets.randbelow(10**6)
    record = play(tuple(given.brokers.split(",")), given.runs, seed)
    return report(record, check(record.deliveries, record.kills, record.lost_attempts))


if __name__ == "__main__":
    sys.exit(main())
