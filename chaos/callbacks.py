# ruff: noqa: T201 - printing is the purpose of a script
"""Targets that answer 202 and report later, while nodes are killed: `python -m chaos.callbacks [--runs N] [--seed N]`.

The target reports at random: before its answer was processed, after the lease, twice, a success and a failure at the
same time, with a forged credential, with that of another run, and with none; some runs send heartbeats, others do not.
Two nodes execute the runs, and each is killed once. Every run must end once, late reports must be stale, and forged
ones refused. The rules are in tests/support/callback_storm/verdict.py.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.support import guardian
from tests.support.callback_storm.driver import StormScale, perform
from tests.support.callback_storm.verdict import judge

RUNS = 1000
SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"how many runs (default: {RUNS})")
    parser.add_argument("--seed", type=int, help="seed of what the target does (default: a random one)")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else secrets.randbelow(10**6)
    guardian.protect()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="detent-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # the server's user has to get through when root runs this
        verdict = judge(asyncio.run(perform(folder, StormScale(given.runs), seed)))
    print(f"\ncallbacks: {given.runs:,} runs, seed {seed}, {time.monotonic() - began:.0f} s")
    for line in [*verdict.violations[:SHOWN], *verdict.untested]:
        print(f"  {line[:1000]}")
    for figure, value in verdict.figures.items():
        print(f"  {figure:<36}{value:>8,}")
    print(f"  {'verdict':<36}{'ok' if verdict.ok else 'VIOLATED' if verdict.violations else 'untested':>8}")
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    sys.exit(main())
