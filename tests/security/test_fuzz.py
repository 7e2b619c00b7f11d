"""No request makes the server fail: every route, with random requests.

Every failure message names the seed; set DETENT_TEST_SEED to repeat it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sys
from collections import Counter
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import starlette.routing

from detent.store import Database, Store
from detent.store.jobs import DEFAULT_TENANT
from tests.security.fuzzing import FuzzedRequest, Fuzzer, Known, routes
from tests.security.wire import Wire, WireAnswer, connect, request, whole_server, wire
from tests.support.processes import Nodes

AT_ONCE = 4
SHORT, LONG = 400, 10_000
RENEW_AFTER = 500
JOB = b'{"schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}'
JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"


class Fuzzing:
    """Sends the requests and collects what is wrong with the answers."""

    def __init__(self, url: str, key: str, other_key: str) -> None:
        self._url = url
        self._key = key
        self._other_key = other_key
        self.wrong: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.routes: Counter[tuple[str, str]] = Counter()

    async def run(self, seed: int, count: int) -> None:
        document = json.loads((await self._asked("GET", "/openapi.json")).body)
        await self._asked("POST", "/api/v1/tenants", body=b'{"name": "fuzzed"}')
        fuzzer = Fuzzer(document, await self._known(), seed)
        made = fuzzer.requests()
        for start in range(0, count, RENEW_AFTER):
            waiting = list(islice(made, min(RENEW_AFTER, count - start)))
            await asyncio.gather(*(self._send_all(waiting[first::AT_ONCE]) for first in range(AT_ONCE)))
            fuzzer.known = await self._known()

    async def _known(self) -> Known:
        """A new job, run and session: the fuzzer may have deleted the last ones."""
        job = json.loads((await self._asked("POST", "/api/v1/jobs", body=JOB)).body).get("id", "x")
        run = json.loads((await self._asked("POST", f"/api/v1/jobs/{job}/trigger", body=b"{}")).body).get("id", "x")
        async with wire(self._url) as client:
            login = await client.ask(request("POST", "/login", FORM, body=f"key={self._key}".encode()))
            cookie = login.headers.get("set-cookie", "").partition(";")[0]
        async with wire(self._url) as client:
            page = await client.ask(request("GET", "/cluster", f"Cookie: {cookie}"))
            csrf = re.search(rb'name="csrf" content="([0-9a-f]+)"', page.body)
        return Known(job, run, self._other_key, f"Bearer {self._key}", cookie, csrf[1].decode() if csrf else "")

    async def _asked(self, method: str, path: str, body: bytes = b"") -> WireAnswer:
        async with wire(self._url) as client:
            return await client.ask(request(method, path, JSON, f"Authorization: Bearer {self._key}", body=body))

    async def _send_all(self, waiting: list[FuzzedRequest]) -> None:
        """Send the requests one after the other on one connection, reconnecting when the server has closed it."""
        client: Wire | None = None
        try:
            for each in waiting:
                client = client or await connect(self._url)
                answer = await self._sent(client, each)
                if answer is None or answer.headers.get("connection") == "close" or _endless(answer):
                    await client.close()
                    client = None
        finally:
            if client is not None:
                await client.close()

    async def _sent(self, client: Wire, each: FuzzedRequest) -> WireAnswer | None:
        self.routes[each.route.method, each.route.path] += 1
        try:
            client.writer.write(each.raw)
            answer = await client.answer(head=each.method == "HEAD")
        except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError) as error:
            self.wrong.append(f"{error!r} instead of an answer to {each.raw[:2000]!r}")
            return None
        self.statuses[answer.status] += 1
        if fault := fault_of(each, answer):
            self.wrong.append(f"{fault}: {answer.status} {answer.body[:500]!r} to {each.raw[:2000]!r}")
        return answer


def fault_of(each: FuzzedRequest, answer: WireAnswer) -> str | None:
    is_problem = answer.headers.get("content-type") == "application/problem+json"
    if answer.status >= 500 and not (answer.status == 503 and b"/problems/busy" in answer.body):
        return "a server error"
    if "x-injected" in answer.headers:
        return "a header injected by the request"
    if each.method != "HEAD" and answer.status >= 400 and each.route.operation is not None and not is_problem:
        return "the error is not application/problem+json"
    if is_problem and each.method != "HEAD":
        kind = answer.problem
        return None if json.loads(answer.body)["detail"] and kind else "a problem without a detail or type"
    return None


def _endless(answer: WireAnswer) -> bool:
    return answer.headers.get("content-type", "").startswith("text/event-stream")


def check(fuzzing: Fuzzing, seed: int, count: int) -> None:
    first = "\n".join(fuzzing.wrong[:20])
    assert not fuzzing.wrong, f"seed {seed}: {len(fuzzing.wrong)} of {count} requests have a wrong answer\n{first}"
    assert sum(fuzzing.statuses.values()) == count
    assert sum(fuzzing.statuses[status] for status in (200, 201, 202, 204)) > count // 20, fuzzing.statuses
    assert fuzzing.statuses[422] > count // 20, fuzzing.statuses


async def keys(store: Store) -> tuple[str, str]:
    """The key that is used, and the id of one that may be revoked."""
    used = await store.keys.add("admin", tenant=DEFAULT_TENANT)
    return used.key, (await store.keys.add("read", tenant=DEFAULT_TENANT)).id


async def test_no_random_request_makes_a_route_fail(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    seed = int(os.environ.get("DETENT_TEST_SEED", "17"))
    async with whole_server(database_url, requests_per_second=0) as (server, store):
        fuzzing = Fuzzing(server.url, *await keys(store))
        await fuzzing.run(seed, SHORT)
        own = [route for route in server.app.routes if isinstance(route, starlette.routing.Route)]
        served = {(method, route.path) for route in own for method in route.methods or ()}
    check(fuzzing, seed, SHORT)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    known = {(method, path.replace("{name:path}", "{name}")) for method, path in served if method != "HEAD"}
    assert set(fuzzing.routes) == known


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_node_survives_ten_thousand_random_requests(database_url: str, tmp_path: Path) -> None:
    """A process with neither a scheduler nor a worker: the jobs that requests create are never called."""
    seed = int(os.environ.get("DETENT_TEST_SEED", secrets.randbelow(10**6)))
    sys.stdout.write(f"seed {seed}\n")
    database = Database(database_url)
    await database.open()
    used = await keys(Store(database))
    await database.close()
    settings = {"DETENT_DATABASE_URL": database_url, "DETENT_REQUESTS_PER_SECOND": "0"}
    with closing(Nodes(tmp_path, **settings)) as nodes:
        node = await nodes.start("api")
        fuzzing = Fuzzing(node.url, *used)
        await fuzzing.run(seed, LONG)
        async with wire(node.url) as client:
            assert (await client.ask(request("GET", "/livez"))).status == 200
        assert "Traceback" not in node.text, node.text[-5000:]
    check(fuzzing, seed, LONG)
    document: Any = {"paths": {}}
    assert {(route.method, route.path) for route in routes(document)} <= set(fuzzing.routes)
