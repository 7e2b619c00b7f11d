# ruff: noqa: T201 - a script talks on its standard output
"""Clusters of real processes under faults: `python -m chaos.cluster [SCENARIO …] [--seed N] [--plan FILE]`.

The plan of a run is drawn from its seed and written down before anything starts; `--plan` does one again, perhaps after
it was shortened by hand. What was seen is kept in build/chaos, and `--judge FILE` looks at such a record once more.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import multiprocessing
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

from chaos.scenarios import SCENARIOS, Scenario
from tests.support import guardian
from tests.support.fleet.checker import Verdict, check
from tests.support.fleet.clocks import MissingError
from tests.support.fleet.driver import perform
from tests.support.fleet.plans import Chance, Plan
from tests.support.fleet.records import Record

BUILD_DIR = Path(__file__).parent.parent / "build" / "chaos"
SHOWN = 12
# So many quiet scenarios at once leave most of two processors idle, which is what they are about.
TOGETHER = 6


class Row(NamedTuple):
    """One line of the table at the end."""

    cells: list[str]
    ok: bool

    @staticmethod
    def of(plan: Plan, verdict: Verdict) -> Row:
        figures = verdict.figures
        cells = [
            plan.scenario, str(plan.seed), str(figures.faults), f"{figures.ticks:,}", str(figures.takeovers),
            str(figures.rescues), str(figures.refused), str(figures.repeated), f"{figures.latest:.2f} s", verdict.word,
        ]  # fmt: skip
        return Row(cells, verdict.word == "ok")

    @staticmethod
    def without_figures(name: str, word: str, seed: int | None = None) -> Row:
        return Row([name, "" if seed is None else str(seed), *("" for _ in HEADINGS[3:]), word], word == "ok")


HEADINGS = [
    "scenario", "seed", "faults", "ticks", "take-overs", "rescues", "refused", "repeated", "latest start", "verdict",
]  # fmt: skip


def table(rows: list[Row]) -> str:
    lines = [HEADINGS, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(_line(cells, widths) for cells in lines)


def _line(cells: list[str], widths: list[int]) -> str:
    first, *rest = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join([cells[0].ljust(len(first)), *rest])


def planned(scenario: Scenario, seed: int, seconds: float) -> Plan:
    faults = scenario.faults(Chance(scenario.name, seed), seconds, scenario.shape.ttl)
    return Plan(scenario.name, seed, seconds, tuple(faults))


def play(plan: Plan, source: Path | None = None) -> Row:
    """Perform a plan and judge it; what was recorded is kept."""
    guardian.protect()
    scenario = SCENARIOS[plan.scenario]
    shape = scenario.shape
    if source is not None:
        shape = shape._replace(variables={**shape.variables, "PYTHONPATH": str(source.absolute())})
    kept = BUILD_DIR / f"{plan.scenario}-{plan.seed}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    plan.write(kept / "plan.json")
    print(
        f"\n{plan.scenario}: seed {plan.seed}, {len(plan.faults)} faults in {plan.seconds:g} s, plan {kept}/plan.json"
    )
    try:
        with tempfile.TemporaryDirectory(prefix="detent-chaos-", ignore_cleanup_errors=True) as name:
            record = asyncio.run(perform(plan, shape, Path(name), scenario.prepare))
    except (AssertionError, MissingError, ExceptionGroup) as error:
        print(f"  it did not come to an end: {_reasons(error)}")
        return Row.without_figures(plan.scenario, "unknown", plan.seed)
    record.write(kept / "record.json.gz")
    for log, text in record.logs.items():
        (kept / f"{log}.log").write_text(text)
    return judge(record)


def play_all(drawn: Sequence[Plan], source: Path | None = None) -> list[Row]:
    """One after another; but the quiet ones, which are long and do little, a few at a time."""
    quiet = [plan for plan in drawn if SCENARIOS[plan.scenario].quiet]
    rows = {plan.scenario: play(plan, source) for plan in drawn if plan not in quiet}
    with ProcessPoolExecutor(TOGETHER, multiprocessing.get_context("spawn")) as pool:
        for plan, (row, text) in zip(quiet, pool.map(_play_apart, quiet, [source] * len(quiet)), strict=True):
            print(text, end="", flush=True)
            rows[plan.scenario] = row
    return [rows[plan.scenario] for plan in drawn]


def _play_apart(plan: Plan, source: Path | None) -> tuple[Row, str]:
    """Run in a separate process, so that its output stays together."""
    with redirect_stdout(io.StringIO()) as said:
        row = play(plan, source)
    return row, said.getvalue()


def _reasons(error: BaseException) -> str:
    return "; ".join(map(_reasons, error.exceptions)) if isinstance(error, ExceptionGroup) else str(error)


def judge(record: Record) -> Row:
    verdict = check(record, SCENARIOS[record.plan.scenario].promise)
    for line in [*verdict.violations[:SHOWN], *verdict.untested]:
        print(f"  {line}")
    if len(verdict.violations) > SHOWN:
        print(f"  … and {len(verdict.violations) - SHOWN} more")
    row = Row.of(record.plan, verdict)
    print(f"  {row.cells[-1]}: latest start {row.cells[-2]}")
    return row


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--seed", type=int, help="seed of the random plans (default: a random one, which is printed)")
    parser.add_argument("--seconds", type=float, help="how long the jobs tick")
    parser.add_argument("--plan", type=Path, help="do this plan again")
    parser.add_argument("--source", type=Path, help="the folder of another copy of the product than the installed one")
    parser.add_argument("--judge", type=Path, help="judge this record again")
    given = parser.parse_args()
    unknown = set(given.scenarios) - SCENARIOS.keys()
    if unknown:
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}: choose from {', '.join(SCENARIOS)}")
    return given


def main() -> int:
    given = arguments()
    if given.judge:
        rows = [judge(Record.read(given.judge))]
    elif given.plan:
        rows = [play(Plan.read(given.plan), given.source)]
    else:
        seed = given.seed if given.seed is not None else secrets.randbelow(10**6)
        chosen = [SCENARIOS[name] for name in given.scenarios or SCENARIOS]
        drawn = [planned(scenario, seed, given.seconds or scenario.seconds) for scenario in chosen]
        rows = play_all(drawn, given.source)
    print(f"\n{table(rows)}")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
