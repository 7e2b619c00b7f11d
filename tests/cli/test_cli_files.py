"""`detent validate` and `detent import crontab --dry-run`: what needs no server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, Finished

Run = Callable[..., Finished]

GOOD = "jobs:\n  - name: {name}\n    schedule: every 5m\n    target: {{type: http, url: 'http://x'}}\n"
CRONTAB = """SHELL=/bin/bash
# Nightly backup
0 2 * * * /opt/backup.sh
0 0 1,15 * 1 pay
@reboot /opt/start
0 3 * * * mail root%hello
"""


def write(detent: CommandLine, name: str, text: str) -> Path:
    path = detent.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_fifty_mistakes_are_fifty_lines_with_their_numbers(inside: Run, detent: CommandLine) -> None:
    jobs = "".join(
        f"  - name: job-{n}\n    schedule: every {n} bananas\n    target: {{type: http, url: 'http://x'}}\n"
        for n in range(50)
    )
    write(detent, "jobs.yaml", f"jobs:\n{jobs}")
    done = inside("validate", "-f", "jobs.yaml")
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert lines[-1] == "error: 50 errors: nothing was changed."
    assert [line.split(": ")[0] for line in lines[:-1]] == [f"jobs.yaml:{3 + 3 * n}" for n in range(50)]
    document = json.loads(inside("validate", "-f", "jobs.yaml", "--json").out)
    assert [fault["line"] for fault in document["faults"]] == [3 + 3 * n for n in range(50)]


def test_folders_are_read_by_their_files_and_deeper_when_asked(inside: Run, detent: CommandLine) -> None:
    write(detent, "jobs/a.yaml", GOOD.format(name="a"))
    write(detent, "jobs/b.json", '{"jobs": [{"name": "b", "schedule": "@daily", "target": {"type": "nope"}}]}')
    write(detent, "jobs/readme.md", "not jobs")
    write(detent, "jobs/deep/c.toml", "[[jobs]]\nname = 5\n")
    write(detent, "jobs/.hidden/d.yaml", "nonsense")
    flat = inside("validate", "-f", "jobs")
    assert flat.code == 2 and [line.split(":")[0] for line in flat.err.splitlines()[:-1]] == ["jobs/b.json"]
    deep = inside("validate", "-f", "jobs", "-R")
    assert {line.split(":")[0] for line in deep.err.splitlines()[:-1]} == {"jobs/b.json", "jobs/deep/c.toml"}
    assert deep.err.splitlines()[-1].endswith(" in 2 files: nothing was changed.")
    alone = inside("validate", "-f", "jobs/a.yaml")
    assert (alone.code, alone.err) == (0, "1 job, no errors.\n")


def test_what_cannot_be_read_is_one_sentence(inside: Run, detent: CommandLine) -> None:
    (detent.folder / "empty").mkdir()
    (detent.folder / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name, words in (("missing.yaml", "cannot be read"), ("empty", "has no file"), ("binary.yaml", "UTF-8")):
        done = inside("validate", "-f", name)
        assert done.code == 2 and words in done.err and done.err.count("\n") == 1
    assert inside("validate").code == 2


def test_jobs_are_read_from_stdin(detent: CommandLine) -> None:
    assert detent("validate", "-f", "-", stdin=GOOD.format(name="a")).code == 0
    assert "-:3: " in detent("validate", "-f", "-", stdin=GOOD.format(name="a").replace("5m", "x")).err


def test_what_is_worth_knowing_about_a_schedule_is_noted(inside: Run, detent: CommandLine) -> None:
    write(detent, "jobs.yaml", GOOD.format(name="a").replace("every 5m", '"0 0 */2 * *"'))
    done = inside("validate", "-f", "jobs.yaml")
    assert done.code == 0 and "jobs.yaml:2: note: '*/2' in the day-of-month field" in done.err


@pytest.fixture
def crontab(detent: CommandLine) -> str:
    write(detent, "my.cron", CRONTAB)
    return "my.cron"


def test_a_crontab_is_explained_line_by_line_without_a_server(detent: CommandLine, crontab: str) -> None:
    detent.environ["DETENT_API_URL"] = "http://127.0.0.1:1"
    done = detent("import", "crontab", crontab, "--dry-run", "--tz", "Europe/Berlin")
    assert done.code == 0
    assert [row[:3] for row in done.rows] == [
        ["1", "setting", ""],
        ["2", "comment", ""],
        ["3", "job", "backup"],
        ["4", "job", "pay"],
        ["5", "refused", ""],
        ["6", "job", "mail"],
    ]
    assert "At 02:00 every day (Europe/Berlin)" in done.rows[2][3]
    assert "Read as a user's crontab, in Europe/Berlin." in done.err
    assert "--allow-shell" in done.err
    assert done.err.endswith("3 jobs; 1 line cannot be imported.\n")
    seen = detent.on_terminal("import", "crontab", crontab, "--dry-run")
    assert "→ backup: At 02:00 every day" in seen.out and "0 0 1,15 * 1 pay" in seen.out
    document = json.loads(detent("import", "crontab", crontab, "--dry-run", "--json").out)
    assert len(document["lines"]) == 6 and document["lines"][2]["job"]["name"] == "backup"


def test_a_crontab_becomes_a_file_that_apply_reads(inside: Run, detent: CommandLine, crontab: str) -> None:
    done = inside("import", "crontab", crontab, "--output", "jobs.yaml", "--owner", "ops")
    assert done.code == 0 and "detent apply -f jobs.yaml" in done.err
    assert inside("validate", "-f", "jobs.yaml").err == "3 jobs, no errors.\n"
    assert (detent.folder / "jobs.yaml").read_text().startswith("owner: ops\n")


def test_a_system_crontab_is_recognised(inside: Run, detent: CommandLine) -> None:
    write(detent, "system", "17 * * * * root run-parts /etc/cron.hourly\n")
    done = inside("import", "crontab", "system", "--dry-run")
    assert done.rows[0][2] == "cron-hourly" and "a system crontab, with a user column" in done.err
    other = inside("import", "crontab", "system", "--dry-run", "--no-user-column")
    assert other.rows[0][2] == "root"


def test_flags_that_contradict_each_other_are_refused(inside: Run, crontab: str) -> None:
    assert inside("import", "crontab", crontab, "--target", "http-template").code == 2
    assert inside("import", "crontab", crontab, "--url", "http://x").code == 2
    assert inside("import", "crontab", crontab, "--tz", "Mars/Olympus").code == 2
    assert inside("import", "crontab", "missing").code == 2


def test_a_crontab_without_jobs_is_reported(inside: Run, detent: CommandLine) -> None:
    write(detent, "none", "# nothing here\n")
    done = inside("import", "crontab", "none")
    assert done.code == 0 and "nothing to import" in done.err
    write(detent, "reboot", "@reboot x\n")
    assert inside("import", "crontab", "reboot").code == 1
