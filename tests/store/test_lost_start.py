"""A process whose database goes away while it starts says so and exits with the code for "unavailable", so that a
supervisor starts it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from detent.errors import DetentError, Unavailable
from detent.node.database import prepare_database
from tests.support.fleet.network import Link, Links
from tests.support.processes import Node, environment
from tests.support.waiting import until

MANY = 200
# A start sends about a hundred messages; every third one is tried.
STEP = 3

Linked = tuple[Links, Link, str]


@pytest.fixture
def linked(database_url: str) -> Iterator[Linked]:
    """A database whose connections can be ended, and its URL."""
    address = urlsplit(database_url)
    query = parse_qs(address.query)
    with closing(Links()) as links:
        link = links.add(Path(query["host"][0], f".s.PGSQL.{query['port'][0]}"))
        yield links, link, f"postgresql://detent@127.0.0.1:{link.port}{address.path}"


@pytest.mark.parametrize("migrate", [False, True], ids=["check", "migrate"])
async def test_a_check_that_loses_the_database_reports_it_as_unavailable_at_every_statement(
    linked: Linked, migrate: bool
) -> None:
    links, link, url = linked
    lost: list[DetentError] = []
    for messages in range(MANY):
        links.end_after(link, messages)
        try:
            await prepare_database(url, "detent", migrate=migrate)
        except DetentError as error:
            lost.append(error)
        else:
            break
    assert 2 < len(lost) < MANY, "the check passed in the end, after it had failed at several statements"
    assert {error.exit_code for error in lost} == {Unavailable.exit_code}


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_node_that_loses_the_database_while_it_starts_exits_as_unavailable(
    linked: Linked, tmp_path: Path
) -> None:
    links, link, url = linked
    environ = environment(tmp_path, DETENT_DATABASE_URL=url)
    lost = 0
    for messages in range(0, MANY, STEP):
        links.end_after(link, messages)
        node = Node(tmp_path, f"n{messages}", ["serve", "--port", "0"], environ)
        try:
            code = await exit_code(node)
        finally:
            node.process.kill()
            node.process.wait()
        if code is None:
            break
        assert code == Unavailable.exit_code, node.text
        lost += 1
    assert lost > 2, "it failed at several statements"
    assert code is None, "it started in the end"


async def exit_code(node: Node) -> int | None:
    """None: it became ready."""
    await until(lambda: node.is_ready or node.process.poll() is not None, 60, f"{node.name} to start")
    return node.process.poll()
