"""A server that is killed while it serves: what was sent again under its key happened once, wherever the kill fell."""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec
import pytest

from detent.api.batch import NDJSON
from tests.support.processes import Nodes

HTTP = {"type": "http", "url": "http://127.0.0.1:9/"}


def lines(first: int, count: int) -> bytes:
    jobs = ({"name": f"n{number:05}", "schedule": "@yearly", "target": HTTP} for number in range(first, first + count))
    return b"\n".join(map(msgspec.json.encode, jobs))


async def send(url: str, path: str, body: bytes, kind: str, key: str | None = None) -> tuple[int, Any, Any] | None:
    """The answer, or None where there was none."""
    headers = {"Content-Type": kind, **({"Idempotency-Key": key} if key else {})}
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/api/v1{path}", data=body, headers=headers) as answer,
        ):
            return answer.status, answer.headers, await answer.json(content_type=None)
    except aiohttp.ClientError:
        return None


@pytest.mark.parametrize(
    ("step", "made", "path", "body", "kind"),
    [
        ("A1", 0, "/jobs", lines(0, 1), "application/json"),
        ("A2", 1, "/jobs", lines(0, 1), "application/json"),
        ("A1", 0, "/jobs/batch", lines(0, 2000), NDJSON),
        ("A2", 2000, "/jobs/batch", lines(0, 2000), NDJSON),
    ],
)
async def test_a_request_whose_server_died_is_sent_again_and_happens_once(
    cluster: Nodes, look: Any, step: str, made: int, path: str, body: bytes, kind: str
) -> None:
    dying = await cluster.start("api", failpoints=f"{step}=exit")
    assert await send(dying.url, path, body, kind, "k") is None
    await dying.ended()
    assert await look.fetchval("SELECT count(*) FROM jobs") == made
    other = await cluster.start("api")
    answer = await send(other.url, path, body, kind, "k")
    assert answer is not None
    status, headers, _ = answer
    assert status in (200, 201)
    assert ("Idempotent-Replayed" in headers) == (step == "A2")
    count = await look.fetchval("SELECT count(*) FROM jobs")
    assert count == await look.fetchval("SELECT count(*) FROM cursors") == (1 if path == "/jobs" else 2000)


async def test_an_upsert_of_five_thousand_that_was_cut_off_is_completed_by_the_next(cluster: Nodes, look: Any) -> None:
    batches = [lines(first, 1000) for first in range(0, 5000, 1000)]
    path = "/jobs/batch?mode=upsert"
    dying = await cluster.start("api", failpoints="A2=exit@3")

    async def send_all(url: str) -> list[Any]:
        return [await send(url, path, batch, NDJSON) for batch in batches]

    assert (await send_all(dying.url))[2:] == [None, None, None]
    registered = await look.fetchval("SELECT count(*) FROM jobs")
    assert registered == 3000
    other = await cluster.start("api")
    answers = [answer[2] for answer in await send_all(other.url)]
    assert sum(answer["created"] for answer in answers) == 5000 - registered
    assert sum(answer["unchanged"] for answer in answers) == registered
    again = [answer[2] for answer in await send_all(other.url)]
    assert sum(answer["unchanged"] for answer in again) == 5000
    rows = await look.fetch("SELECT count(*), count(DISTINCT name) AS names FROM jobs JOIN cursors USING (job)")
    assert (rows[0]["count"], rows[0]["names"]) == (5000, 5000)
