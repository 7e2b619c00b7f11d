"""Files of jobs: every mistake with its line, and jobs with every default filled in."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from detent.declarative.jobs_file import ReadResult, read_files

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
HTTP = '{type: http, url: "https://example.org/"}'


def read(text: str, name: str = "jobs.yaml") -> ReadResult:
    return read_files([(name, text)], NOW)


def places(found: ReadResult) -> list[str]:
    return [f"{fault.source}:{fault.line}" for fault in found.faults]


def test_fields_of_a_job_override_the_defaults_of_the_file_which_override_those_of_detent() -> None:
    found = read(
        "owner: team-a\ndefaults:\n  timezone: Europe/Berlin\n  priority: 7\njobs:\n"
        f'  - name: report\n    priority: 2\n    schedule: "0 9 * * MON"\n    target: {HTTP}\n'
    )
    assert found.faults == []
    (job,) = found.jobs
    assert (job.name, job.owner, job.source, job.line) == ("report", "team-a", "jobs.yaml", 6)
    assert (job.spec.timezone, job.spec.priority, job.spec.max_retries) == ("Europe/Berlin", 2, 3)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "jobs.json",
            '{"jobs": [{"name": "a", "schedule": "every 5m", "target": {"type": "http", "url": "http://x"}}]}',
        ),
        ("jobs.toml", '[[jobs]]\nname = "a"\nschedule = "every 5m"\ntarget = {type = "http", url = "http://x"}\n'),
        ("jobs.yml", "jobs:\n- name: a\n  schedule: every 5m\n  target: {type: http, url: 'http://x'}\n"),
    ],
)
def test_the_three_formats_say_the_same(name: str, text: str) -> None:
    found = read(text, name)
    assert found.faults == []
    assert [(job.name, job.spec.schedule) for job in found.jobs] == [("a", "every 5m")]


MISTAKES = """owner: team-a
colour: blue
defaults:
  timezone: Europe/Berln
  priority: 120
jobs:
  - name: a
    schedule: "61 * * * *"
    target:
      type: http
      url: "ftp://x"
      headers:
        Host: x
        b d: y
    max_retries: many
    foo: 1
    tags:
      - a
      - a
      - " b"
  - name: b
    schedle: "1 * * * *"
    target:
      type: htp
      url: x
  - name: c
    schedule: "0 0 1 * MON"
    timezone: UTC
    priority: 5
    target:
      type: shell
      command:
        - ""
        - "\\0"
      env:
        A B: "1"
        DETENT_X: "2"
  - 5
  - schedule: every 5m
    timezone: UTC
    priority: 4
    jitter_seconds: 400
    target:
      type: python
      function: "a b"
    ends_at: 2026-01-01
    retry_backoff: sometimes
    payload:
      deep:
        - "\\0"
  - name: a
    schedule: every 5m
    timezone: UTC
    priority: 1
    target: {type: http, url: "http://x"}
  - name: a
    schedule: every 5m
    timezone: UTC
    priority: 1
    target: {type: http, url: "http://x"}
"""


def test_every_mistake_of_a_file_is_reported_with_its_line() -> None:
    found = read(MISTAKES)
    lines = [fault.line for fault in found.faults]
    # The defaults on lines 4 and 5 are wrong; each is reported once although two jobs inherit them.
    expected = "2 4 5 8 11 13 14 15 16 19 20 22 24 27 33 34 36 37 38 39 42 45 46 47 50 51 56"
    assert lines == [int(number) for number in expected.split()]
    by_line = {fault.line: fault.message for fault in found.faults}
    assert "did you mean 'Europe/Berlin'" in by_line[4]
    assert by_line[22].endswith("did you mean schedule?")
    assert "day_match" in by_line[27]
    assert "on line 7" in by_line[51] and "on line 7" in by_line[56]


def test_fifty_mistakes_are_fifty_messages() -> None:
    jobs = "".join(f"  - name: job-{n}\n    schedule: every {n} bananas\n    target: {HTTP}\n" for n in range(50))
    found = read("jobs:\n" + jobs)
    assert [fault.line for fault in found.faults] == [3 + 3 * n for n in range(50)]


def test_names_are_unique_over_all_files() -> None:
    text = f"jobs:\n  - name: a\n    schedule: every 5m\n    target: {HTTP}\n"
    found = read_files([("one.yaml", text), ("two.yaml", text)], NOW)
    assert places(found) == ["two.yaml:2"]
    assert "one.yaml:2" in found.faults[0].message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "below it a list of jobs"),
        ("- name: a\n", 1, "below it a list of jobs"),
        ("jobs: none\n", 1, "jobs is"),
        ("owner: ''\njobs: []\n", 1, "owner is"),
        ("owner: 5\njobs: []\n", 1, "owner is 5"),
        ("defaults: 5\njobs: []\n", 1, "defaults is 5"),
        ("defaults:\n  name: x\njobs: []\n", 2, "cannot be a default"),
        ("jobs: [\n", 2, "not YAML"),
    ],
)
def test_the_error_for_a_file_of_another_shape_says_what_to_write(text: str, line: int, words: str) -> None:
    (fault,) = read(text).faults
    assert fault.line == line and words in fault.message


def test_a_file_may_hold_several_documents() -> None:
    one = f"owner: {{}}\njobs:\n  - name: {{}}\n    schedule: every 5m\n    target: {HTTP}\n"
    text = one.replace("{}", "a", 2) + "---\n" + one.replace("{}", "b", 2)
    assert [(job.owner, job.name, job.line) for job in read(text).jobs] == [("a", "a", 3), ("b", "b", 9)]


def test_a_one_off_in_the_past_is_not_an_error_of_the_file() -> None:
    found = read(f"jobs:\n  - name: a\n    schedule: 2020-01-01T00:00:00Z\n    target: {HTTP}\n")
    assert found.faults == []


def test_a_duplicate_name_is_reported_even_when_those_jobs_have_other_faults() -> None:
    text = """
jobs:
  - name: report
    schedule: "61 * * * *"
    target: {type: http, url: "https://example.org/"}
  - name: report
    schedule: "every 0s"
    target: {type: http, url: "https://example.org/"}
"""
    faults = read_files([("jobs.yaml", text)], NOW).faults
    assert len(faults) == 3
    assert any("is also used by the job on line 3" in fault.message for fault in faults if fault.line == 6)
