# ruff: noqa: T201 - printing is the purpose of a script
"""On-demand runs while everything is killed: `python -m chaos.on_demand [--runs N] [--seed N] [--promote]`.

Enqueuers place orders in their own transactions, at every isolation level, with unique keys and concurrency keys, some
delayed, some rolled back. Nodes call the target. Both are killed at random all the time. What was committed must end,
once; what was rolled back must never run; and no key may be violated. The record is kept in build/chaos.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from chaos.harness import milliseconds, percentile
from tests.support import guardian
from tests.support.orders.checker import OrderVerdict, check, first_starts
from tests.support.orders.driver import Scale, perform
from tests.support.orders.records import OrderBook

BUILD_DIR = Path(__file__).parent.parent / "build" / "chaos"
SHOWN = 20
RUNS = 100_000


def play(scale: Scale, seed: int) -> OrderBook:
    guardian.protect()
    kept = BUILD_DIR / f"on-demand-{seed}{'-promote' if scale.promotes else ''}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    print(f"on demand: {scale.runs:,} runs, seed {seed}, record in {kept}", flush=True)
    with tempfile.TemporaryDirectory(prefix="detent-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # the server's user has to get through when root runs this
        book = asyncio.run(perform(folder, scale, seed))
    book.write(kept / "record.json.gz")
    for log, text in book.logs.items():
        (kept / f"{log}.log").write_text(text)
    return book


def report(book: OrderBook, verdict: OrderVerdict) -> int:
    starts = first_starts(book)
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in verdict.figures._asdict().items()]
    rows[-1] = ("latest start", milliseconds(verdict.figures.latest_start))
    if starts:
        rows += [(f"start, p{share:g}", milliseconds(percentile(starts, share / 100))) for share in (50, 99)]
    rows += [("seconds", f"{book.ended - book.began:.0f}"), ("verdict", verdict.word)]
    for line in [*verdict.violations[:SHOWN], *verdict.untested]:
        print(f"  {line[:1000]}")
    if len(verdict.violations) > SHOWN:
        print(f"  … and {len(verdict.violations) - SHOWN} more")
    for name, value in rows:
        print(f"  {name:<24}{value:>12}")
    return 0 if verdict.word == "ok" else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=RUNS, help="so many runs are enqueued (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of the dice (default: a random one, which is printed)")
    parser.add_argument("--promote", action="store_true", help="the database fails over to its standby on the way")
    parser.add_argument("--judge", type=Path, help="judge this record again")
    given = parser.parse_args()
    if given.judge:
        book = OrderBook.read(given.judge)
    else:
        seed = given.seed if given.seed is not None else secrets.randbelow(10**6)
        book = play(Scale(given.runs, promotes=given.promote), seed)
    return report(book, check(book))


if __name__ == "__main__":
    sys.exit(main())
