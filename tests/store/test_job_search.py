"""Searching for jobs on a real PostgreSQL: each filter, all together, in bounded stretches, along indexes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from detent.domain.job import HttpTarget, JobSpec, PythonTarget
from detent.jobs import JobOperations
from detent.store import Store, job_search
from detent.store.job_search import JobSearch
from detent.store.statement import STATEMENTS

HTTP = HttpTarget(url="http://127.0.0.1:9/")
HOUR = timedelta(hours=1)


def spec(name: str, **fields: Any) -> JobSpec:
    return JobSpec(**{"name": name, "schedule": "every 1h", "target": HTTP, **fields})


@pytest.fixture
async def jobs(verbs: Store) -> None:
    await JobOperations(verbs).registration.add(
        [
            spec("Mail-1", tags=["x", "weekly"]),
            spec("mail-2", tags=["x"], queue="bulk"),
            spec("report", schedule="every 30m", target=PythonTarget(function="a:b"), queue="bulk"),
            spec("100%_mail", schedule="every 3d"),
            spec("größe", schedule="every 10d"),
        ]
    )


async def names(verbs: Store, limit: int = 50, **search: Any) -> list[str]:
    found, after = [], 0
    while True:
        page, following = await verbs.jobs.list(JobSearch(**search), after=after, limit=limit)
        assert len(page) <= limit
        found += [job.name for job in page]
        if following is None:
            return found
        assert following > after
        after = following


FILTERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "everything": ({}, ["Mail-1", "mail-2", "report", "100%_mail", "größe"]),
    "a word, whatever its case": ({"words": ("MAIL",)}, ["Mail-1", "mail-2", "100%_mail"]),
    "two words": ({"words": ("mail", "2")}, ["mail-2"]),
    "a word with signs": ({"words": ("%_",)}, ["100%_mail"]),
    "a word beyond ASCII": ({"words": ("größe",)}, ["größe"]),
    "a beginning": ({"prefix": "mail"}, ["mail-2"]),
    "a beginning with a sign": ({"prefix": "100%"}, ["100%_mail"]),
    "a tag": ({"tags": ("x",)}, ["Mail-1", "mail-2"]),
    "two tags": ({"tags": ("weekly", "x")}, ["Mail-1"]),
    "a kind of target": ({"targets": ("python", "shell")}, ["report"]),
    "a queue": ({"queues": ("bulk",)}, ["mail-2", "report"]),
    "two queues": ({"queues": ("bulk", "default"), "words": ("mail-",)}, ["Mail-1", "mail-2"]),
    "soon": ({"next_before": timedelta(minutes=45)}, ["report"]),
    "later": ({"next_after": timedelta(days=1)}, ["100%_mail", "größe"]),
    "between": ({"next_after": timedelta(days=1), "next_before": timedelta(days=5)}, ["100%_mail"]),
    "contradicting": ({"statuses": ()}, []),
    "everything at once": (
        {
            "words": ("mail",),
            "prefix": "m",
            "tags": ("x",),
            "targets": ("http",),
            "queues": ("bulk",),
            "next_before": 2 * HOUR,
        },
        ["mail-2"],
    ),
}


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("what", FILTERS)
async def test_a_filter_finds(verbs: Store, what: str) -> None:
    search, expected = FILTERS[what]
    assert await names(verbs, **search) == expected
    assert await names(verbs, limit=1, **search) == expected


@pytest.mark.usefixtures("jobs")
async def test_times_may_be_given_as_such(verbs: Store, look: Any) -> None:
    now: datetime = await look.fetchval("SELECT now()")
    assert await names(verbs, next_before=now + timedelta(minutes=45)) == ["report"]
    assert await names(verbs, next_after=now + timedelta(days=5)) == ["größe"]


@pytest.mark.usefixtures("jobs")
async def test_statuses_choose_and_paused_jobs_have_no_next_tick(verbs: Store) -> None:
    (page, _) = await verbs.jobs.list()
    await JobOperations(verbs).lifecycle.pause(page[0].id)
    await JobOperations(verbs).lifecycle.delete(page[1].id)
    assert await names(verbs, statuses=("paused",)) == ["Mail-1"]
    assert await names(verbs, statuses=("deleted",)) == ["mail-2"]
    assert await names(verbs, statuses=("paused", "deleted")) == ["Mail-1", "mail-2"]
    assert await names(verbs, statuses=("deleted",), prefix="mail") == ["mail-2"]
    assert await names(verbs, prefix="mail") == []
    assert await names(verbs, words=("mail",)) == ["Mail-1", "100%_mail"]
    assert await names(verbs, next_before=timedelta(days=100)) == ["report", "100%_mail", "größe"]


@pytest.mark.usefixtures("jobs")
async def test_jobs_of_others_are_not_found(verbs: Store) -> None:
    assert await verbs.jobs.list(JobSearch(words=("mail",)), tenant=2) == ([], None)
    assert await verbs.jobs.list(JobSearch(prefix="mail"), tenant=2) == ([], None)


async def test_a_rare_word_is_searched_in_bounded_ranges(
    verbs: Store, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_search, "FIRST_STRETCH", 10)
    monkeypatch.setattr(job_search, "MAX_EXAMINED", 100)
    await JobOperations(verbs).batches.create([spec(f"n{number}") for number in range(300)] + [spec("needle")])
    first = await look.fetchval("SELECT min(job) FROM jobs")
    page, following = await verbs.jobs.list(JobSearch(words=("needle",)), after=first - 1)
    assert page == []
    assert following is not None
    assert following < first + 300
    assert await names(verbs, words=("needle",)) == ["needle"]
    assert await names(verbs, limit=7, words=("n1",)) == [
        f"n{number}" for number in range(300) if str(number)[0] == "1"
    ]


async def test_names_and_tags_are_found_by_their_indexes(verbs: Store, look: Any) -> None:
    await JobOperations(verbs).batches.create([spec(f"n{number:05}", tags=[f"t{number}"]) for number in range(5000)])
    await look.execute("VACUUM ANALYZE jobs")
    await look.execute("VACUUM ANALYZE cursors")
    for name, search, index in (
        ("job/list_by_name", JobSearch(prefix="n0012"), "jobs_name"),
        ("job/list", JobSearch(tags=("t77",)), "jobs_tags"),
    ):
        arguments = (1, list(search.wanted), 0, job_search.LAST, 51, *search.filters(), None)
        await look.execute("SET plan_cache_mode = force_custom_plan")
        plan = "\n".join(row[0] for row in await look.fetch("EXPLAIN " + STATEMENTS[name].text, *arguments))
        assert index in plan, plan
        assert "Seq Scan on jobs" not in plan
