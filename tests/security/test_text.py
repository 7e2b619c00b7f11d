"""Text from untrusted users: no terminal, spreadsheet or page executes it, and no two different names look alike."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from detent.cli.history import _cell
from detent.declarative import yaml_text
from detent.domain.text import check_seen, csv_cell, visible, visible_json
from detent.errors import UsageError
from detent.telemetry import log
from tests.api.api_client import HTTP, ApiClient
from tests.api.api_server import Readiness, serving
from tests.cli.command_line import CommandLine
from tests.cli.contract_server import ContractServer

ESCAPE = "\x1b]0;title\x07\x1b[2J\x9b31m"
UNSEEN = {
    "a right-to-left override": ("nightly\u202egnp", "U+202E (right-to-left override)"),
    "a left-to-right isolate": ("nightly\u2066", "U+2066 (left-to-right isolate)"),
    "a right-to-left mark": ("nigh\u200ftly", "U+200F (right-to-left mark)"),
    "a zero width space": ("night\u200bly", "U+200B (zero width space)"),
    "a zero width joiner": ("night\u200dly", "U+200D (zero width joiner)"),
    "a byte order mark": ("night\ufeffly", "U+FEFF (zero width no-break space)"),
    "a soft hyphen": ("night\u00adly", "U+00AD (soft hyphen)"),
    "a tag": ("nightly\U000e0041", "U+E0041 (tag latin capital letter a)"),
    "a Hangul filler": ("nightly\u3164", "U+3164 (hangul filler)"),
    "a variation selector": ("nightly\ufe00", "U+FE00 (variation selector-1)"),
    "a supplementary variation selector": ("nightly\U000e0100", "U+E0100 (variation selector-17)"),
    "the emoji style of a letter": ("nightly\ufe0f", "U+FE0F (variation selector-16)"),
    "a line separator": ("night\u2028ly", "U+2028 (line separator)"),
}


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[ApiClient]:
    async with serving(database_url, Readiness({"database": True})) as client:
        yield client


@pytest.fixture
def server() -> Any:
    with ContractServer() as running:
        yield running


@pytest.mark.parametrize("what", UNSEEN)
def test_a_name_with_a_character_that_cannot_be_seen_is_refused_with_its_code_point(what: str) -> None:
    name, code = UNSEEN[what]
    with pytest.raises(UsageError) as caught:
        check_seen(name, "The name", "/name")
    assert f"has the character {code}, which cannot be seen: remove it." in caught.value.message
    assert visible(caught.value.message) == caught.value.message


def test_names_of_every_script_are_accepted() -> None:
    european = ("nightly report", "Rechnungen prüfen", "ночной", "⏰ wecker", "❤\ufe0f backup")
    for name in (*european, "夜间任务", "تقرير", "रिपोर्ट"):
        check_seen(name, "The name")
        assert visible(name) == name


async def test_jobs_queues_tags_keys_and_owners_are_refused_with_such_names(api: ApiClient) -> None:
    bad = "pay\u202eroll"
    job = {"schedule": "every 1h", "target": HTTP}
    calls: list[tuple[str, str, Any]] = [
        ("POST", "/api/v1/jobs", {**job, "name": bad}),
        ("POST", "/api/v1/jobs", {**job, "name": "good", "queue": bad}),
        ("POST", "/api/v1/jobs", {**job, "name": "good", "tags": [bad]}),
        ("PUT", f"/api/v1/jobs/by-name/{quote(bad)}", job),
        ("PUT", f"/api/v1/jobs/by-name/good?owner={quote(bad)}", job),
        ("PUT", f"/api/v1/queues/{quote(bad)}", {"max_concurrent": 1}),
        ("POST", "/api/v1/keys", {"scope": "read", "name": bad}),
        ("POST", "/api/v1/queues/mail/claim", {"worker": bad}),
    ]
    for method, path, body in calls:
        problem = await api.problem(method, path, 422, json=body)
        assert "U+202E" in problem["detail"], (path, problem)
    assert (await api.ask("POST", "/api/v1/tenants", json={"name": bad})).status == 422
    batch = await api.problem("POST", "/api/v1/jobs/batch", 422, json=[{**job, "name": bad}, {**job, "name": "b"}])
    assert batch["errors"][0]["pointer"] == "/0/name"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_a_csv_cell_is_never_a_formula(start: str) -> None:
    written = str(_cell(f"{start}HYPERLINK(1)"))
    assert written.startswith("'")
    assert "\r" not in written
    assert csv_cell("plain") == "plain"
    assert csv_cell("-5.2") == "-5.2"
    assert _cell(-5) == -5


def test_an_exported_history_has_no_control_characters_of_targets(server: ContractServer, tmp_path: Path) -> None:
    detent = CommandLine(tmp_path, server.url)
    server.add_run(server.add_job("\u202ejob"), "dead", error=f"=cmd|' /C calc'!A0 {ESCAPE}", result={"a": ESCAPE})
    table = detent("history", "export", "--format", "csv").out
    assert visible(table) == table
    (row,) = csv.DictReader(io.StringIO(table))
    assert row["error"].startswith("'=cmd")
    assert row["job"] == "\\u202ejob"
    lines = detent("history", "export").out
    assert visible(lines) == lines
    assert json.loads(lines)["error"].endswith(ESCAPE)


def test_no_table_of_the_command_line_has_control_characters_of_names(server: ContractServer, tmp_path: Path) -> None:
    detent = CommandLine(tmp_path, server.url)
    job = server.add_job(f"a\u202e\u200b{ESCAPE}")
    run = server.add_run(job, "dead", error=ESCAPE)
    for arguments in (("job", "list"), ("job", "get", job["id"]), ("run", "get", run["id"]), ("run", "list", "--json")):
        seen = detent(*arguments)
        assert seen.code == 0
        assert visible(seen.out) == seen.out


def test_json_and_yaml_show_unseen_characters_and_read_back_as_the_same() -> None:
    document = {"a\u202e": [f"{ESCAPE}\n", "zero\u200bwidth", "\U000e0041", "\u3164", "é"], "b": "\u2028"}
    for ascii_only in (True, False):
        text = visible_json(json.dumps(document, indent=2, ensure_ascii=ascii_only))
        assert json.loads(text) == document
        assert visible(text) == text
    text = yaml_text.write(document)
    assert visible(text) == text
    (read,) = yaml_text.read_yaml(text)
    assert read.value == document


@pytest.mark.parametrize("kind", ["event", "field", "exception"])
def test_a_pretty_log_contains_no_control_characters_of_jobs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import structlog

    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    log.configure("pretty", "info")
    try:
        writer = log.logger("worker")
        hostile = f"nightly{ESCAPE}\n2026-01-01 [info] forged line\u202e"
        if kind == "event":
            writer.info(hostile)
        elif kind == "field":
            writer.info("run failed", job=hostile, error=hostile)
        else:
            try:
                raise RuntimeError(f"{ESCAPE}\u202e")
            except RuntimeError:
                writer.exception("run failed")
    finally:
        structlog.reset_defaults()
    text = written.getvalue()
    assert text
    assert visible(text) == text
    if kind != "exception":
        assert text.count("\n") == 1


EDGES = (
    *("0001-01-01T00:00:00", "1970-12-31T23:59:59.999", "1971-01-01T00:00:00", "9000-12-31T23:59:59.999"),
    *("9001-01-01T00:00:00", "9990-01-01T00:00:00", "9999-12-31T23:59:59.999999", "9999-12-31T24:00:00"),
)
OFFSETS = ("", "Z", "+14:00", "-12:00", "+23:59", "-23:59", "+24:00", "-00:00")
SCHEDULES = ("0 9 * * *", "FREQ=MONTHLY;BYDAY=-1FR", "every 1h", "2031-01-01T00:00:00Z", "0 0 29 2 *")


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
async def test_no_instant_at_an_edge_of_the_calendar_fails_a_request(api: ApiClient, every: int) -> None:
    jobs = [
        (await api.create(name=f"j{number}", schedule=schedule, timezone=zone))["id"]
        for number, schedule in enumerate(SCHEDULES)
        for zone in ("UTC" if "Z" in schedule or "every" in schedule else "Pacific/Apia",)
    ]
    instants = [quote(edge + offset) for edge in EDGES for offset in OFFSETS]
    paths = [f"/api/v1/jobs/{job}/explain?at={at}" for job in jobs for at in instants]
    paths += [f"/api/v1/jobs/{jobs[0]}/ticks?{name}={at}" for name in ("from", "to") for at in instants]
    for path in paths[::every]:
        answer = await api.ask("GET", path)
        assert answer.status in (200, 422), (path, answer.document)
