"""A process whose database goes away while it starts says so and exits with the code for "unavailable", so that a
supervisor starts it again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from detent.errors import DetentError, Unavailable
from detent.node.database import prepare_database
from tests.support.fleet.network import Links

MANY = 200


@pytest.mark.parametrize("migrate", [False, True], ids=["check", "migrate"])
async def test_a_start_that_loses_the_database_reports_it_as_unavailable_at_every_statement(
    database_url: str, migrate: bool
) -> None:
    address = urlsplit(database_url)
    query = parse_qs(address.query)
    lost: list[DetentError] = []
    with closing(Links()) as links:
        link = links.add(Path(query["host"][0], f".s.PGSQL.{query['port'][0]}"))
        url = f"postgresql://detent@127.0.0.1:{link.port}{address.path}"
        for messages in range(MANY):
            links.end_after(link, messages)
            try:
                await prepare_database(url, "detent", migrate=migrate)
            except DetentError as error:
                lost.append(error)
            else:
                break
    assert 2 < len(lost) < MANY, "the start passed in the end, after it had failed at several statements"
    assert {error.exit_code for error in lost} == {Unavailable.exit_code}
