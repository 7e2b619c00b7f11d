"""The archive in object storage, against a real server and against moto: complete, and never overwritten."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from detent.errors import Unavailable
from detent.store import Store
from detent.upkeep import archive
from detent.upkeep.archive import Bucket, write
from tests.retention.test_retention import DAY, add_run, again, keeper, old_history
from tests.support.object_stores import BUCKET, MotoS3, ObjectServer, SeaweedFS, running

URL = f"s3://{BUCKET}/detent"
NAME = "run_history/run_history_20260131.17.jsonl.gz"


@pytest.fixture(scope="module", params=[SeaweedFS, MotoS3], ids=lambda kind: kind.name)
def storage(request: pytest.FixtureRequest) -> Iterator[ObjectServer]:
    with running(request.param) as server:
        yield server


@pytest.fixture
def server(storage: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    for name, value in storage.variables.items():
        monkeypatch.setenv(name, value)
    client = storage.client()
    for key in storage.objects():
        client.delete_object(Bucket=BUCKET, Key=key)
    return storage


async def pages(*lines: str) -> AsyncIterator[Sequence[str]]:
    for line in lines:
        yield [line]


def lines_of(raw: bytes) -> list[str]:
    return gzip.decompress(raw).decode().splitlines()


async def archived(look: Any) -> list[Any]:
    return list(await look.fetch("SELECT * FROM history_parts WHERE archive IS NOT NULL ORDER BY part"))


async def test_a_day_is_archived_before_it_is_dropped_and_reads_back(
    look: Any, store: Store, server: ObjectServer
) -> None:
    first = await old_history(look, store)
    for hour in range(3):
        await add_run(look, 1, first + hour * DAY / 24, result=f'"{hour} ä"')
    await keeper(store, Bucket(URL)).tick()
    objects = server.objects()
    rows = await archived(look)
    assert len(rows) == len(objects) > 3
    for row in rows:
        raw = objects[row["archive"].removeprefix(f"s3://{BUCKET}/")]
        assert hashlib.sha256(raw).hexdigest() == row["sha256"]
        assert len(lines_of(raw)) == row["rows"]
        assert row["archived_at"] <= row["dropped_at"]
    (full,) = [row for row in rows if row["rows"]]
    found = [json.loads(line) for line in lines_of(objects[full["archive"].removeprefix(f"s3://{BUCKET}/")])]
    assert sorted(line["result"] for line in found) == ['"0 ä"', '"1 ä"', '"2 ä"']


async def test_of_two_nodes_that_archive_the_same_day_one_wins_and_nothing_is_overwritten(
    server: ObjectServer,
) -> None:
    contents = [pages(f'{{"writer": {number}}}') for number in range(8)]
    done = await asyncio.gather(*(write(Bucket(URL), NAME, each) for each in contents))
    objects = {f"s3://{BUCKET}/{key}": raw for key, raw in server.objects().items()}
    assert f"{URL}/{NAME}" in objects
    assert len({each.location for each in done}) == len(objects) == 8
    for number, each in enumerate(done):
        assert lines_of(objects[each.location]) == [f'{{"writer": {number}}}']
        assert hashlib.sha256(objects[each.location]).hexdigest() == each.sha256


async def test_the_same_file_is_stored_once_however_often_it_is_written(server: ObjectServer) -> None:
    done = await asyncio.gather(*(write(Bucket(URL), NAME, pages("1", "2")) for _ in range(8)))
    assert {each.location for each in done} == {f"{URL}/{NAME}"}
    assert [lines_of(raw) for raw in server.objects().values()] == [["1", "2"]]


async def test_a_node_that_died_between_upload_and_record_is_continued_by_the_next(
    look: Any, store: Store, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await old_history(look, store)
    await add_run(look, 1, first)

    async def dies(*_: object) -> None:
        raise Unavailable("killed")

    monkeypatch.setattr(store.retention, "archived", dies)
    await keeper(store, Bucket(URL)).tick()
    monkeypatch.undo()
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    before = server.objects()
    assert await archived(look) == []
    await again(look, store, Bucket(URL))
    assert server.objects() == before
    assert len(await archived(look)) == len(before)


async def test_a_large_file_is_uploaded_in_parts_under_the_name_of_its_content(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "LARGEST_PUT", 100)
    line = "".join(hashlib.sha256(str(number).encode()).hexdigest() for number in range(180_000))
    done = await write(Bucket(URL), NAME, pages(line))
    assert done.location == f"{URL}/run_history/run_history_20260131.17.{done.sha256[:12]}.jsonl.gz"
    (raw,) = server.objects().values()
    assert len(raw) > 5 << 20, "it must need several parts"
    assert hashlib.sha256(raw).hexdigest() == done.sha256
    assert await write(Bucket(URL), NAME, pages(line)) == done


class WithoutConditions(BaseHTTPRequestHandler):
    """S3 as older servers speak it: a condition is answered with 501."""

    protocol_version = "HTTP/1.1"
    stored: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "If-None-Match" in self.headers:
            self.answer(501, 0)
        else:
            self.stored[self.path] = body
            self.answer(200, 0)

    def do_HEAD(self) -> None:
        self.answer(200, len(self.stored[self.path]))

    def answer(self, status: int, length: int) -> None:
        self.send_response(status)
        for name, value in (("ETag", '"1"'), ("Last-Modified", "Sat, 31 Jan 2026 00:00:00 GMT")):
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


async def test_a_server_without_conditions_gets_files_named_by_their_content(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), WithoutConditions)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    reach = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_ALLOW_HTTP": "true"}
    for name, value in (reach | {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "r"}).items():
        monkeypatch.setenv(name, value)
    try:
        done = await write(Bucket(URL), NAME, pages("one"))
    finally:
        server.shutdown()
        server.server_close()
    (name,) = WithoutConditions.stored
    assert name.endswith(f"run_history_20260131.17.{done.sha256[:12]}.jsonl.gz")
    assert lines_of(WithoutConditions.stored[name]) == ["one"]


async def test_wrong_credentials_are_reported_and_nothing_is_dropped(
    look: Any, store: Store, monkeypatch: pytest.MonkeyPatch, server: ObjectServer
) -> None:
    if server.name == "moto":
        pytest.skip("moto checks no signature")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(Unavailable, match=r"did not accept .* 403 Forbidden") as refused:
        await write(Bucket(URL), NAME, pages("1"))
    assert "wrong" not in str(refused.value)
    first = await old_history(look, store)
    await add_run(look, 1, first)
    await keeper(store, Bucket(URL)).tick()
    assert await look.fetchval("SELECT count(*) FROM history_parts WHERE dropped_at IS NOT NULL") == 0
    assert server.objects() == {}


async def test_a_bucket_that_does_not_exist_is_reported(server: ObjectServer) -> None:
    with pytest.raises(Unavailable, match=r"s3://nowhere/detent did not accept"):
        await write(Bucket("s3://nowhere/detent"), NAME, pages("1"))


async def test_a_server_that_is_away_delays_the_drop_until_it_is_back(look: Any, store: Store) -> None:
    with running(SeaweedFS) as server, pytest.MonkeyPatch.context() as environ:
        for name, value in server.variables.items():
            environ.setenv(name, value)
        first = await old_history(look, store)
        await add_run(look, 1, first)
        await write(Bucket(URL), NAME, pages("before"))
        server.kill()
        with pytest.raises(Unavailable, match="did not accept"):
            await write(Bucket(URL), "run_history/other.jsonl.gz", pages("1"))
        assert await archived(look) == []
        server.start()
        await keeper(store, Bucket(URL)).tick()
        objects = server.objects()
        assert lines_of(objects[f"detent/{NAME}"]) == ["before"]
        assert len(await archived(look)) == len(objects) - 1
