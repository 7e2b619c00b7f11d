"""Known vulnerabilities in the locked dependencies, those of the development tools included, as pip-audit finds them.

    python -m tools.audit_dependencies [option of pip-audit …]

ends with 1 for findings, and with 2 if the audit could not be finished. Where no database of vulnerabilities can be
reached it says SKIPPED and ends with 0. `--ignore-vuln ID` accepts a finding; `-s osv` asks another database.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

LOCK = Path(__file__).parents[1] / "requirements" / "dev.lock"
# A release with vulnerabilities that are known since 2018. A mirror without advisories answers "none" for every
# package: a database that does not know these cannot judge ours.
KNOWN_BAD = "flask==0.5\n"


class Answer(NamedTuple):
    dependencies: list[dict[str, Any]] | None
    """None: no answer"""
    said: str

    @property
    def findings(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [(each, found) for each in self.dependencies or () for found in each.get("vulns", ())]

    @property
    def reason(self) -> str:
        lines = [line for line in self.said.splitlines() if line.strip()]
        return lines[-1].strip() if lines else "no reason given"


def pip_audit(*arguments: str) -> Answer:
    """pip-audit ends with 1 for findings and for errors alike: only findings come with a report."""
    # A cache of its own, because an answer kept from last week says nothing about today.
    with tempfile.TemporaryDirectory(prefix="detent-audit-") as cache:
        always = ["--format", "json", "--progress-spinner", "off", "--disable-pip", "--cache-dir", cache]
        command = [sys.executable, "-m", "pip_audit", *always, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return Answer(json.loads(done.stdout)["dependencies"], done.stderr)
    except (ValueError, KeyError):
        return Answer(None, done.stderr)


def ask_about_known_bad(options: list[str]) -> Answer:
    with tempfile.TemporaryDirectory(prefix="detent-audit-") as folder:
        file = Path(folder, "known-bad.txt")
        file.write_text(KNOWN_BAD, "utf-8")
        return pip_audit("--no-deps", "-r", str(file), *options)


def audit(options: list[str], lock: Path = LOCK) -> int:
    trial = ask_about_known_bad(options)
    if not trial.findings:
        reason = trial.reason if trial.dependencies is None else f"it knows nothing about {KNOWN_BAD.strip()}"
        print(f"SKIPPED: the database of vulnerabilities cannot be asked ({reason}). Nothing was audited.")
        return 0
    answer = pip_audit("--require-hashes", "-r", str(lock), *options)
    if answer.dependencies is None:
        print(f"The audit could not be finished:\n{answer.said}", file=sys.stderr)
        return 2
    return report(answer)


def report(answer: Answer) -> int:
    assert answer.dependencies is not None
    for each in answer.dependencies:
        if reason := each.get("skip_reason"):
            print(f"not audited: {each['name']}: {reason}")
    for each, found in answer.findings:
        fixed = ", ".join(found["fix_versions"]) or "no release yet"
        names = " ".join([found["id"], *found.get("aliases", ())])
        print(f"{each['name']} {each['version']}: {names}, fixed in {fixed}")
    audited = sum("version" in each for each in answer.dependencies)
    print(f"{audited} packages audited, {len(answer.findings)} known vulnerabilities.")
    return 1 if answer.findings else 0


if __name__ == "__main__":
    sys.exit(audit(sys.argv[1:]))
