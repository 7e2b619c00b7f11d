"""detent's SDK beside five others, cell by cell: every verdict of docs/compared-sdks.md comes from code that runs here.

`make compare-sdks` runs this with detent's interpreter; the others live in one of their own, `--sdks-python`. A cell
of detent that does not end as it should is a "no". One of another system stops the page: it would be our mistake.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent / "peers"))

from points import POINTS, SYSTEMS, Point, System  # noqa: E402
from report import Verdict, page  # noqa: E402
from stores import Stores, stores  # noqa: E402

CELLS = HERE / "cells"
PAGE = ROOT / "docs" / "compared-sdks.md"
RESULTS = ROOT / "build" / "compare-sdks"
LONGEST_CELL = 240.0
_VERDICT = re.compile(r"(yes|partly|no): (.+)")
_FLAGGED = re.compile(r"^(?P<file>[^:]+\.py):(?P<line>\d+)(:\d+)?:? (- )?error", re.MULTILINE)


def judge(code: int, printed: str, errors: str) -> Verdict:
    """The verdict of a cell that ran."""
    last = printed.strip().splitlines()[-1] if printed.strip() else ""
    said = _VERDICT.fullmatch(last)
    if code == 0 and said is not None:
        return Verdict(said[1], said[2], printed.strip())
    reason = (errors.strip() or f"ended with {code}").splitlines()[-1]
    return Verdict("missing", f"the code fails: {reason}", f"{printed}\n{errors}".strip())


async def execute(point: Point, system: System, at: Stores, python: str) -> Verdict:
    async with at.fresh("redis") as redis, at.fresh("postgres") as database:
        with tempfile.TemporaryDirectory(prefix="detent-cell-", ignore_cleanup_errors=True) as folder:
            process = await asyncio.create_subprocess_exec(
                *(python, str(CELLS / point.name / f"with_{system.name}.py")),
                cwd=folder,
                env=_environment(redis, database),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(LONGEST_CELL):
                    said, errors = await process.communicate()
            except TimeoutError:
                return Verdict("missing", f"the code does not end within {LONGEST_CELL:.0f} s", "")
            finally:
                _end_all_of(process.pid)
            return judge(process.returncode or 0, said.decode(errors="replace"), errors.decode(errors="replace"))


def _end_all_of(session: int) -> None:
    """What a cell started and left behind."""
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _environment(redis: str, database: str) -> dict[str, str]:
    ours = ("DETENT_", "PYTHONDONTWRITEBYTECODE")  # modules that are never compiled would be slow to import
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    paths = os.pathsep.join([str(HERE / "setups"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "REDIS_URL": redis, "DATABASE_URL": database, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}


def check_types(system: System, points: Sequence[Point], python: str) -> dict[tuple[str, str], Verdict]:
    """Both type checkers read all cells of a system, each in a run of its own."""
    files = [CELLS / point.name / f"with_{system.name}.py" for point in points]
    files = [file for file in files if file.exists()]
    if not files:
        return {}
    mypy = ["-m", "mypy", "--strict", "--no-error-summary", "--no-incremental", "--scripts-are-modules"]
    by_mypy = {str(file): _flagged([python, *mypy, str(file)]) for file in files}
    by_pyright = _flagged([sys.executable, "-m", "pyright", "--pythonpath", python, *map(str, files)])
    return {
        (point.name, system.name): _judge_types(file, by_mypy[str(file)].get(file.parent.name, set()), by_pyright)
        for point in points
        if (file := CELLS / point.name / f"with_{system.name}.py").exists()
    }


def _flagged(command: Sequence[str]) -> dict[str, set[int]]:
    """Lines with an error, by the name of the point."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, check=False)
    said = done.stdout
    # 0: nothing found, 1: something found. Anything else is a checker that did not check, which is no verdict.
    if done.returncode not in (0, 1) or (done.returncode == 1 and not _FLAGGED.search(_stripped(said))):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{said[-1000:]}{done.stderr[-1000:]}")
    found: dict[str, set[int]] = {}
    for match in _FLAGGED.finditer(_stripped(said)):
        found.setdefault(Path(match["file"]).parent.name, set()).add(int(match["line"]))
    return found


def _stripped(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


def _judge_types(file: Path, by_mypy: set[int], by_pyright: dict[str, set[int]]) -> Verdict:
    lines = file.read_text("utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    sides = {"mypy": by_mypy, "pyright": by_pyright.get(file.parent.name, set())}
    counts = ", ".join(f"{name} flags {len(lines & wrong)} of {len(wrong)}" for name, lines in sides.items())
    alarms = sorted({line for flagged in sides.values() for line in flagged - wrong})
    missed = [
        f"line {line} is not flagged by {name}: {lines[line - 1].strip()}"
        for line in sorted(wrong)
        for name, flagged in sides.items()
        if line not in flagged
    ]
    false = [f"line {line} is right and is flagged: {lines[line - 1].strip()}" for line in alarms]
    hits = sum(len(flagged & wrong) for flagged in sides.values())
    needed = {number for number, line in enumerate(lines, 1) if line.endswith("# needed")}
    word = "yes" if not missed and not false else "no" if not hits or needed & set(alarms) else "partly"
    sentence = counts + (f"; flagged without reason: {len(alarms)}" if alarms else "")
    return Verdict(word, sentence, "\n".join([counts, *missed, *false]))


def versions(python: str) -> dict[str, str]:
    code = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    names = [system.package for system in SYSTEMS if system.name != "detent"]
    said = json.loads(subprocess.check_output([python, "-c", code, *names], text=True))
    return {"detent": "of this checkout", **{s.name: said[s.package] for s in SYSTEMS if s.package in said}}


async def run(
    points: Sequence[Point], systems: Sequence[System], sdks_python: str, *, show: bool
) -> dict[tuple[str, str], Verdict]:
    verdicts: dict[tuple[str, str], Verdict] = {}
    async with stores(with_redis=True) as at:
        for system in systems:
            python = sys.executable if system.name == "detent" else sdks_python
            verdicts |= check_types(system, [point for point in points if point.kind == "types"], python)
            for point in points:
                if point.kind == "run" and (CELLS / point.name / f"with_{system.name}.py").exists():
                    verdicts[point.name, system.name] = await execute(point, system, at, python)
                if (point.name, system.name) in verdicts:
                    verdict = verdicts[point.name, system.name]
                    RESULTS.mkdir(parents=True, exist_ok=True)
                    (RESULTS / f"{point.name}-{system.name}.json").write_text(json.dumps(verdict), "utf-8")
                    print(f"{system.name:14} {point.name:16} {verdict.word:8} {verdict.sentence}", flush=True)
                    if verdict.word == "missing" or show:
                        print(verdict.output[-1500:], flush=True)
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sdks-python", required=True, help="the interpreter that has the other SDKs")
    parser.add_argument("--points", nargs="*", default=[], help="only these points")
    parser.add_argument("--systems", nargs="*", default=[], help="only these systems")
    parser.add_argument("--show", action="store_true", help="print what each cell prints")
    options = parser.parse_args()
    points = [point for point in POINTS if not options.points or point.name in options.points]
    systems = [system for system in SYSTEMS if not options.systems or system.name in options.systems]
    sdks_python = str(Path(options.sdks_python).absolute())
    asyncio.run(run(points, systems, sdks_python, show=options.show))
    known = {
        (point.name, system.name): Verdict(*json.loads(path.read_text("utf-8")))
        for point in POINTS
        for system in SYSTEMS
        if (path := RESULTS / f"{point.name}-{system.name}.json").exists()
    }
    failed = [key for key, verdict in known.items() if verdict.word == "missing" and key[1] != "detent"]
    if failed or len(known) < len(POINTS) * len(SYSTEMS):
        raise SystemExit(f"No page yet: of {len(POINTS) * len(SYSTEMS)} cells {len(known)} ran, {failed} failed.")
    head = (HERE / "head.md").read_text("utf-8")
    PAGE.write_text(page(known, versions(sdks_python), CELLS, head), "utf-8")


if __name__ == "__main__":
    main()
