"""The grammar of `search`: what each part means, and what cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.api.search import MAX_TERMS, RunSearch, job_search, run_search, terms
from detent.domain.states import RunStatus
from detent.errors import UsageError
from detent.store.job_search import JobSearch

HOUR = timedelta(hours=1)
NOON = datetime(2026, 12, 24, 12, tzinfo=UTC)

JOBS: dict[str, dict[str, Any]] = {
    "": {},
    "  \t\n": {},
    "mail": {"words": ("mail",)},
    "mail weekly": {"words": ("mail", "weekly")},
    "name:mail": {"words": ("mail",)},
    "NAME:mail": {"words": ("mail",)},
    "name:mail*": {"prefix": "mail"},
    'name:"mail*"': {"words": ("mail*",)},
    "name:*": {},
    "name:ma* name:mail*": {"prefix": "mail"},
    "name:ma* name:b*": {"prefix": "ma", "statuses": ()},
    'name:"a b"': {"words": ("a b",)},
    '"a b" c': {"words": ("a b", "c")},
    '"a:b"': {"words": ("a:b",)},
    r'"say \"hi\" \\"': {"words": ('say "hi" \\',)},
    "tag:x tag:y": {"tags": ("x", "y")},
    'tag:"a, b"': {"tags": ("a, b",)},
    "tag:a:b": {"tags": ("a:b",)},
    "status:paused": {"statuses": ("paused",)},
    "status:Paused,active": {"statuses": ("active", "paused")},
    "status:deleted": {"statuses": ("deleted",)},
    "status:paused status:active": {"statuses": ()},
    "target:http,shell": {"targets": ("http", "shell")},
    "target:http target:shell": {"targets": ("http",), "statuses": ()},
    "queue:a,b queue:b": {"queues": ("b",)},
    'queue:"a,b"': {"queues": ("a,b",)},
    "next:<1h": {"next_before": HOUR},
    "next:<=1h": {"next_before": HOUR},
    "next:>2d": {"next_after": timedelta(days=2)},
    "next:>30s next:<1w": {"next_after": timedelta(seconds=30), "next_before": timedelta(weeks=1)},
    "next:<2026-12-24T12:00:00Z": {"next_before": NOON},
    "next:>2026-12-24T13:00:00+01:00": {"next_after": NOON},
    "mail tag:x next:<1h status:active": {
        "words": ("mail",),
        "tags": ("x",),
        "next_before": HOUR,
        "statuses": ("active",),
    },
}


@pytest.mark.parametrize("text", JOBS)
def test_a_search_for_jobs_means(text: str) -> None:
    assert job_search(text, JobSearch()) == JobSearch(**JOBS[text])


def test_a_search_adds_to_what_was_asked_for_beside_it() -> None:
    start = JobSearch(statuses=("active",), prefix="ma", tags=("x",), targets=("http",))
    assert job_search("tag:y name:mail* target:http", start) == start._replace(tags=("x", "y"), prefix="mail")
    assert job_search("status:paused", start).statuses == ()
    assert job_search("target:shell", start).statuses == ()


RUNS: dict[str, dict[str, Any]] = {
    "": {},
    "job:nightly": {"job": "nightly"},
    'job:"a b" job:"a b"': {"job": "a b"},
    "status:dead,cancelled": {"statuses": frozenset({RunStatus.DEAD, RunStatus.CANCELLED})},
    "status:dead status:running": {"statuses": frozenset()},
    "since:1h": {"since": -HOUR},
    "until:1d since:1w": {"until": -timedelta(days=1), "since": -timedelta(weeks=1)},
    "since:2026-12-24T12:00:00Z": {"since": NOON},
}


@pytest.mark.parametrize("text", RUNS)
def test_a_search_for_runs_means(text: str) -> None:
    assert run_search(text, RunSearch()) == RunSearch(**RUNS[text])


BAD_JOBS = {
    # the search: part of the sentence
    "colour:red": "Known are name, tag, status, target, queue, next",
    "nmae:x": "did you mean name?",
    "http://example.org": "in quotes",
    "name:": "no value after name",
    '""': "no value after a quotation mark",
    'name:"a': "unmatched quotation mark",
    'na"me': "inside a word",
    '"a"b': "inside a word",
    "status:gone": "active, paused, completed or deleted",
    "status:": "no value after status",
    "target:ftp": "http, python, shell, topic or celery",
    "next:1h": "next:<1h or next:>1d",
    "next:<": "next:<1h or next:>1d",
    "next:<soon": "a duration",
    "next:<1y": "a duration",
    "next:<9999999w": "a duration",
    "next:<2026-12-24": "an instant such as",
    "next:<2026-12-24T12:00:00": "an instant such as",
    "next:<0001-01-01T00:00:00+14:00": "an instant such as",
    "a " * (MAX_TERMS + 1): "more than",
}


@pytest.mark.parametrize("text", BAD_JOBS)
def test_a_search_that_cannot_be_read_is_refused_with_the_cure(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        job_search(text, JobSearch())
    assert BAD_JOBS[text] in caught.value.message
    assert caught.value.pointer == "/search"
    assert caught.value.message.endswith(".")


BAD_RUNS = {
    "nightly": "job:nightly",
    "tag:x": "Known are job, status, since, until",
    "status:failed": "pending, running",
    "job:a job:b": "two jobs",
    "since:yesterday": "since:1h",
}


@pytest.mark.parametrize("text", BAD_RUNS)
def test_a_search_for_runs_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_search(text, RunSearch())
    assert BAD_RUNS[text] in caught.value.message


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for search, start in ((job_search, JobSearch()), (run_search, RunSearch())):
        try:
            search(text, start)  # type: ignore[arg-type]  # the two take what belongs to them
        except UsageError as error:
            assert error.pointer == "/search"


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=10), max_size=5))
def test_any_values_can_be_written_in_quotes(values: list[str]) -> None:
    quoted = [value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    assert [term.value for term in terms(" ".join(f'tag:"{value}"' for value in quoted))] == values
