# ruff: noqa: T201 - a script talks on its standard output
"""The checker must find faults in a product that lacks one of its rules, and none in the complete one."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.support import guardian
from tests.support.fleet.checker import Verdict, check
from tests.support.fleet.driver import perform
from tests.support.fleet.mutants import MUTANTS, SOURCE, Mutant, mutated, overlay


def play(mutant: Mutant, source: Path) -> Verdict:
    guardian.protect()
    with tempfile.TemporaryDirectory(prefix="detent-chaos-", ignore_cleanup_errors=True) as name:
        record = asyncio.run(perform(mutant.plan, mutated(mutant.shape, source), Path(name), mutant.prepare))
    return check(record, mutant.promise)


def caught(mutant: Mutant) -> bool:
    """Violated with the rule gone, ok with it."""
    print(f"\n{mutant.name}")
    with tempfile.TemporaryDirectory(prefix="detent-mutant-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        without = play(mutant, overlay(folder, mutant.patches))
    sound = play(mutant, SOURCE)
    print(f"  without the rule: {without.word}: {'; '.join(without.violations[:3]) or 'nothing was found'}")
    print(f"  with it: {sound.word}{''.join(f'; {line}' for line in (*sound.violations, *sound.untested)[:3])}")
    return without.word == "violated" and sound.word == "ok"


def main() -> int:
    results = [caught(mutant) for mutant in MUTANTS]
    print(f"\n{sum(results)} of {len(results)} mutants caught")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
