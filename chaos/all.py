# ruff: noqa: T201 - a script talks on its standard output
"""Runs every script of this folder, one after another, and prints one table at the end; exit code 1 if any failed."""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import time
from pathlib import Path

from chaos.cluster import Row, planned, play_all, table
from chaos.mutants import caught
from chaos.scenarios import SCENARIOS
from tests.support.fleet.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[1]
SCRIPTS = (
    "every_second",
    "kill_restart",
    "takeover",
    "rolling",
    "on_demand",
    "on_demand --promote --runs 20000",
    "topics",
    "transports",
    "effects",
    "fairness",
    "dead_host",
    "floods",
    "secret_leaks",
    "callbacks",
    "celery",
    "celery --broker rabbitmq",
)


def script(name: str) -> Row:
    module, *arguments = name.split()
    command = [sys.executable, "-m", f"chaos.{module}", *arguments]
    done = subprocess.run(command, check=False, cwd=ROOT)  # noqa: S603 - one of ours
    return Row.without_figures(name, "violated" if done.returncode else "ok")


def mutant(each: Mutant) -> Row:
    return Row.without_figures(f"mutant: {each.name}", "ok" if caught(each) else "missed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of the random plans (default: a random one, which is printed)")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else secrets.randbelow(10**6)
    began = time.monotonic()
    rows = [script(name) for name in SCRIPTS]
    rows += play_all([planned(scenario, seed, scenario.seconds) for scenario in SCENARIOS.values()])
    rows += [mutant(each) for each in MUTANTS]
    print(f"\n{table(rows)}\n\nseed {seed}, {(time.monotonic() - began) / 60:.0f} minutes")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
