"""A server behind a link that swallows its answers: what was asked of it is given up, and so is the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from detent.domain.run import Claim
from detent.errors import OwnershipLost, Unavailable
from detent.store import listen, sql
from detent.store.db import Database, OutcomeUnknown, PoolName
from detent.store.effects import EffectPool
from detent.store.limits import STANDARD
from tests.support.factories import LONG_AGO
from tests.support.fleet.network import HOLD, REPLIES, SWALLOW, Link, Links
from tests.support.waiting import until

SHORT = 0.5
NOBODYS = Claim(1, 0, LONG_AGO, 0, 1, 1)


@pytest.fixture
async def linked(database_url: str) -> AsyncIterator[tuple[Database, Links, Link]]:
    """A database whose way to its server can be cut."""
    address = urlsplit(database_url)
    query = parse_qs(address.query)
    socket = Path(query["host"][0], f".s.PGSQL.{query['port'][0]}")
    with closing(Links()) as links:
        link = links.add(socket)
        database = Database(f"postgresql://detent@127.0.0.1:{link.port}{address.path}", ttl=SHORT)
        await database.open()
        yield database, links, link
        await database.close()


async def test_a_statement_without_an_answer_is_of_unknown_outcome_and_the_next_one_is_served(
    linked: tuple[Database, Links, Link],
) -> None:
    database, links, link = linked
    links.cut(link, REPLIES, SWALLOW)
    with pytest.raises(OutcomeUnknown, match=r"The database's answer was lost \(.+\)\.") as caught:
        await database.fetch(PoolName.WORK, sql.partition.READ_SHARE, 1)
    assert caught.value.exit_code == Unavailable.exit_code
    links.heal(link)
    assert len(await database.fetch(PoolName.WORK, sql.partition.READ_SHARE, 1)) == 1


async def test_a_listener_whose_server_does_not_answer_any_more_begins_anew(
    linked: tuple[Database, Links, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "ANSWER_SECONDS", 0.2)
    database, links, link = linked
    heard: list[str] = []
    listener = listen.Listener(database, {"there": heard.append})
    assert await listener.ensure()
    deaf = listener._connection
    links.cut(link, REPLIES, HOLD)
    assert not await listener.ensure(), "it was asked a moment ago"
    listener._ask_next = 0.0
    listening = asyncio.create_task(listener.ensure())
    await until(lambda: deaf.is_closed() or listening.done(), what="the connection to be given up")
    links.heal(link)
    assert await listening
    async with database.connection(PoolName.REQUEST) as connection:
        await connection.execute("NOTIFY there, 'hello'")
    await until(lambda: heard == ["hello"])
    assert not await listener.ensure()
    await listener.close()


async def test_after_a_fail_over_no_connection_uses_the_former_server(database_url: str) -> None:
    database = Database(database_url)
    listener = listen.Listener(database, {"there": lambda _: None})
    effects = EffectPool(database_url, "detent", STANDARD)
    assert await listener.ensure()
    before = await backend(effects)
    assert await backend(effects) == before
    database.servers.generation += 1
    assert await listener.ensure()
    assert not await listener.ensure()
    assert await backend(effects) != before
    await listener.close()
    await effects.close()


async def backend(effects: EffectPool) -> int:
    """The server's process behind a handler's transaction."""
    with pytest.raises(OwnershipLost):
        async with effects.transaction(1, NOBODYS, 0.0) as connection:
            number: int = await connection.fetchval("SELECT pg_backend_pid()")
    return number


async def test_the_connection_of_an_abandoned_statement_blocks_no_caller(
    linked: tuple[Database, Links, Link],
) -> None:
    database, links, link = linked
    links.cut(link, REPLIES, HOLD)
    asking = asyncio.create_task(database.fetch(PoolName.WORK, sql.partition.READ_SHARE, 1))
    await until(lambda: database._pools[PoolName.WORK].idle == 0, what="the statement to be under way")
    asking.cancel()
    await asyncio.sleep(0)
    asking.cancel()  # as those do who have waited long enough
    await asyncio.gather(asking, return_exceptions=True)
    waiting = [task for task in asyncio.all_tasks() if "release" in task.get_coro().__qualname__]
    assert waiting == []
    links.heal(link)
