"""Lines and progress of runs over HTTP: pages, events that continue where they broke, and workers that pull."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from yarl import URL

from detent.api import log_streams
from detent.domain.run_output import TAIL_PART, OutputChunk, OutputLine, encode_lines
from detent.store import Store
from tests.api.api_client import ApiClient
from tests.api.test_api_pull import claimed, look_at, say
from tests.support.waiting import until

EVENTS = {"Accept": "text/event-stream"}


def chunk(run: Any, *numbers: int, part: int = 1, token: int | None = None, attempt: int = 1) -> OutputChunk:
    lines = [OutputLine(number, 1_000 * number, "info", "shop", f"line {number}") for number in numbers]
    token = run["token"] if token is None else token
    return OutputChunk(run["run_id"], token, attempt, part, numbers[0], numbers[-1], encode_lines(lines))


async def logs(api: ApiClient, run: Any, **query: Any) -> Any:
    path = URL(f"/api/v1/runs/{run['run_id']}/logs").with_query(query)
    return await api.good("GET", str(path))


class Events:
    """Reads a stream of events in the background."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None, Any]] = []

    async def read(self, api: ApiClient, run: Any, after: str | None = None) -> None:
        headers = {**EVENTS, **({} if after is None else {"Last-Event-ID": after})}
        async with api.session.get(f"{api.url}/api/v1/runs/{run['run_id']}/logs", headers=headers) as answer:
            assert (answer.status, answer.content_type) == (200, "text/event-stream")
            event: dict[str, str] = {}
            async for raw in answer.content:
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name:
                    event[name] = value
                elif "data" in event:
                    self.seen.append((event["event"], event.get("id"), json.loads(event["data"])))
                    event = {}

    @property
    def numbers(self) -> list[int]:
        return [data["number"] for kind, _, data in self.seen if kind == "line"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_streams, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(log_streams, "LAST_LINES_SECONDS", 0.2)


async def test_lines_are_listed_page_by_page_in_their_order(api: ApiClient, store: Store) -> None:
    run = await claimed(api)
    await store.output.add([chunk(run, 1, 2), chunk(run, 3, part=2), chunk(run, 8, 9, part=TAIL_PART)])
    first = await logs(api, run, limit=2)
    assert [line["message"] for line in first["items"]] == ["line 1", "line 2"]
    assert first["items"][0] == {
        "attempt": 1, "number": 1, "at": "1970-01-01T00:00:01Z", "level": "info", "logger": "shop", "message": "line 1",
    }  # fmt: skip
    second = await logs(api, run, limit=2, cursor=first["next_cursor"])
    assert ([line["number"] for line in second["items"]], second["left_out"]) == ([3, 8], 4)
    third = await logs(api, run, cursor=second["next_cursor"])
    assert ([line["number"] for line in third["items"]], third["next_cursor"]) == ([9], None)
    await store.output.add([chunk(run, 11, 12, part=TAIL_PART)])
    later = await logs(api, run, cursor=third["last"])
    assert ([line["number"] for line in later["items"]], later["left_out"]) == ([11, 12], 1)


async def test_each_attempt_has_its_own_lines(api: ApiClient, store: Store) -> None:
    run = await claimed(api)
    await store.output.add([chunk(run, 1, 2, token=run["token"] - 1), chunk(run, 1, attempt=2)])
    everything = await logs(api, run)
    assert [(line["attempt"], line["number"]) for line in everything["items"]] == [(1, 1), (1, 2), (2, 1)]
    assert everything["left_out"] == 0
    assert [line["attempt"] for line in (await logs(api, run, attempt=2))["items"]] == [2]


async def test_lines_of_a_dead_run_that_is_retried_number_its_attempts_on(
    api: ApiClient, store: Store, sql: Any
) -> None:
    run = await claimed(api)
    await sql.execute(
        "INSERT INTO attempts (job, scheduled_at, serial, token, finished_at, attempt, outcome)"
        " SELECT job, scheduled_at, serial, token - back, now(), 4 - back, 'failed'"
        " FROM live_runs, generate_series(2, 3) AS back"
    )
    before, now = run["token"] - 2, run["token"]
    await store.output.add([chunk(run, 1, token=before, attempt=2), chunk(run, 1, token=now, attempt=1)])
    everything = await logs(api, run)
    assert [line["attempt"] for line in everything["items"]] == [2, 3]
    assert [line["attempt"] for line in (await logs(api, run, attempt=3))["items"]] == [3]


async def test_a_chunk_that_is_sent_twice_or_late_changes_nothing(api: ApiClient, store: Store) -> None:
    run = await claimed(api)
    await store.output.add([chunk(run, 1, 2)])
    await store.output.add([chunk(run, 1, 2)])
    await store.output.add([chunk(run, 8, 9, part=TAIL_PART)])
    await store.output.add([chunk(run, 6, 7, part=TAIL_PART)])
    assert [line["number"] for line in (await logs(api, run))["items"]] == [1, 2, 8, 9]


async def test_a_run_is_followed_until_it_has_ended(api: ApiClient, store: Store) -> None:
    run, events = await claimed(api), Events()
    await store.output.add([chunk(run, 1)])
    following = asyncio.create_task(events.read(api, run))
    await until(lambda: events.numbers == [1], 20, "the first line")
    await store.output.add([chunk(run, 2, 3, part=2)])
    await until(lambda: events.numbers == [1, 2, 3], 20, "the next ones")
    await say(api, run, "heartbeat", progress={"fraction": 0.25, "message": "sorting"})
    await until(lambda: events.seen[-1][0] == "progress", 20, "its progress")
    assert {key: events.seen[-1][2][key] for key in ("fraction", "message")} == {"fraction": 0.25, "message": "sorting"}
    await say(api, run, "complete")
    await store.output.add([chunk(run, 4, part=3)])
    await following
    assert events.numbers == [1, 2, 3, 4], "also those that were written after the end"
    assert events.seen[-1] == ("end", None, {"status": "succeeded"})


async def test_a_stream_that_broke_continues_behind_its_last_event(api: ApiClient, store: Store) -> None:
    run, first, second = await claimed(api), Events(), Events()
    await store.output.add([chunk(run, 1, 2, 3)])
    await say(api, run, "complete")
    await first.read(api, run)
    assert first.numbers == [1, 2, 3]
    await second.read(api, run, after=first.seen[1][1])
    assert second.numbers == [3]


async def test_a_bad_cursor_is_refused(api: ApiClient) -> None:
    run = await claimed(api)
    for cursor in ("x", "1", "1.x", f"{1 << 64}.1", "1.99999999999"):
        await api.problem("GET", f"/api/v1/runs/{run['run_id']}/logs?cursor={cursor}", 422)


async def test_a_tenant_may_follow_only_so_many_runs(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    run, events = await claimed(api), Events()
    monkeypatch.setattr(log_streams.LogStreams, "follow", _refusing(log_streams.LogStreams.follow))
    following = asyncio.create_task(events.read(api, run))
    await until(lambda: OPEN == [1], 20, "the stream")
    await api.problem("GET", f"/api/v1/runs/{run['run_id']}/logs", 429, headers=EVENTS)
    await say(api, run, "complete")
    await following


OPEN: list[int] = []


def _refusing(follow: Any) -> Any:
    """With one stream for each tenant."""

    def limited(streams: Any, *arguments: Any) -> Any:
        streams._per_tenant = 1
        opened = follow(streams, *arguments)
        OPEN.append(1)
        return opened

    return limited


# --- workers that pull ---


async def test_a_worker_that_pulls_adds_lines_and_reports_progress(api: ApiClient) -> None:
    run = await claimed(api)
    lines = [{"message": "one"}, {"message": "two", "level": "error", "logger": "smtp", "at": "2026-01-01T00:00:00Z"}]
    await api.good("POST", f"/api/v1/runs/{run['run_id']}/logs", 204, json={"token": run["token"], "lines": lines})
    await api.good(
        "POST", f"/api/v1/runs/{run['run_id']}/logs", 204, json={"token": run["token"], "lines": [{"message": "three"}]}
    )
    found = (await logs(api, run))["items"]
    assert [(line["number"], line["level"], line["logger"], line["message"]) for line in found] == [
        (1, "info", "output", "one"),
        (2, "error", "smtp", "two"),
        (3, "info", "output", "three"),
    ]
    assert found[1]["at"] == "2026-01-01T00:00:00Z"
    assert (await look_at(api, run))["progress"] is None
    await say(api, run, "heartbeat", progress={"fraction": 0.5})
    shown = (await look_at(api, run))["progress"]
    assert (shown["fraction"], shown["message"]) == (0.5, None)
    await say(api, run, "complete")
    assert (await look_at(api, run))["progress"] is None, "it has ended"


async def test_lines_of_a_worker_that_pulls_are_capped_as_those_of_a_handler(api: ApiClient) -> None:
    run = await claimed(api)
    for start in range(0, 3_000, 600):
        lines = [{"message": f"line {number}"} for number in range(start, start + 600)]
        await api.good("POST", f"/api/v1/runs/{run['run_id']}/logs", 204, json={"token": run["token"], "lines": lines})
    found = await logs(api, run, limit=1000)
    assert [line["number"] for line in found["items"]] == [*range(1, 501), *range(2_501, 3_001)]
    assert (found["left_out"], found["items"][-1]["message"]) == (2_000, "line 2999")


async def test_a_worker_that_lost_its_run_adds_nothing(api: ApiClient) -> None:
    run = await claimed(api)
    body = {"token": run["token"] + 1, "lines": [{"message": "late"}]}
    await api.problem("POST", f"/api/v1/runs/{run['run_id']}/logs", 409, json=body)
    await say(api, run, "complete")
    body["token"] = run["token"]
    await api.problem("POST", f"/api/v1/runs/{run['run_id']}/logs", 409, json=body)
    assert (await logs(api, run))["items"] == []


async def test_a_failed_attempt_of_a_worker_that_pulls_may_have_a_traceback(api: ApiClient) -> None:
    run = await claimed(api)
    await say(api, run, "fail", error="no", traceback="Traceback: line 7 of mail.js")
    (attempt,) = (await look_at(api, run))["attempts"]
    assert attempt["traceback"] == "Traceback: line 7 of mail.js"


async def test_a_run_has_the_steps_whose_results_are_stored(api: ApiClient, sql: Any) -> None:
    run = await claimed(api)
    assert "steps" not in await look_at(api, run)
    await sql.execute(
        "INSERT INTO run_steps (job, scheduled_at, serial, name, attempt, token, stored_at, took, result)"
        " SELECT job, scheduled_at, serial, 'charge', 1, token, '2026-01-01Z', '1.5 s', '1' FROM live_runs"
    )
    assert (await look_at(api, run))["steps"] == [
        {"name": "charge", "attempt": 1, "finished_at": "2026-01-01T00:00:00Z", "duration_ms": 1500}
    ]
