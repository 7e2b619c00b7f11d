"""The feed that replaces notifications: none is lost, none is delivered twice, none is written without a reader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.store import Store, sql
from detent.store.db import connect
from detent.store.feed import Feed
from detent.store.limits import REQUEST_LIMITS

CHANNEL = "detent_runs"


class Ear(Feed):
    """A feed that remembers what it said."""

    def __init__(self, store: Store) -> None:
        self.heard: list[str] = []
        super().__init__(store.database, {CHANNEL: self.heard.append})

    async def news(self) -> list[str]:
        self.heard.clear()
        assert not await self.ensure()
        return list(self.heard)


@pytest.fixture
async def ear(store: Store) -> Ear:
    ear = Ear(store)
    assert await ear.ensure()  # at the first look, something may have been missed
    return ear


@pytest.fixture
async def another(database_url: str) -> AsyncIterator[Any]:
    connection = await connect(database_url, "detent", REQUEST_LIMITS)
    yield connection
    await connection.close()


async def say(connection: Any, payload: str, channel: str = CHANNEL) -> None:
    await connection.fetch(sql.feed.NOTIFY.text, channel, payload)


async def test_what_is_said_is_heard_once(ear: Ear, store: Store) -> None:
    await store.upkeep.wake(CHANNEL, "one")
    await store.upkeep.wake("elsewhere", "not for us")
    assert await ear.news() == ["one"]
    assert await ear.news() == []
    for _ in range(3):
        await store.upkeep.wake(CHANNEL, "two")
    assert await ear.news() == ["two"]


async def test_a_commit_that_comes_late_is_not_lost(ear: Ear, look: Any, another: Any) -> None:
    """The first to begin is the last to commit: its number is lower than one that was read long ago."""
    async with look.transaction():
        await say(look, "slow")
        await say(another, "quick")
        assert await ear.news() == ["quick"]
        await say(another, "quicker")
        assert await ear.news() == ["quicker"]
    assert await ear.news() == ["slow"]
    assert await ear.news() == []


async def test_an_old_transaction_elsewhere_holds_nothing_up_and_repeats_nothing(
    ear: Ear, look: Any, another: Any
) -> None:
    async with look.transaction():
        await look.fetchval("SELECT pg_current_xact_id()::text")
        for word in ("one", "two", "three"):
            await say(another, word)
            assert await ear.news() == [word]
    assert await ear.news() == []


async def test_what_is_rolled_back_was_never_said(ear: Ear, look: Any) -> None:
    transaction = look.transaction()
    await transaction.start()
    await say(look, "no")
    await transaction.rollback()
    assert await ear.news() == []


async def test_nothing_is_written_down_when_no_node_reads(store: Store, look: Any) -> None:
    await say(look, "to whom?")
    assert await look.fetchval("SELECT count(*) FROM changes") == 0
    ear = Ear(store)
    await ear.ensure()
    await say(look, "to you")
    assert await ear.news() == ["to you"]
    await look.execute("UPDATE cluster SET feed_until = now() - interval '1 second'")
    await say(look, "gone")
    assert await ear.news() == []


async def test_a_reader_leaves_word_that_it_is_there(ear: Ear, look: Any) -> None:
    left = "SELECT feed_until - now() BETWEEN interval '30 seconds' AND interval '1 minute' FROM cluster"
    assert await look.fetchval(left)


async def test_after_a_fail_over_that_lost_transactions_everything_is_read_again(ear: Ear, store: Store) -> None:
    assert ear._lowest is not None
    ear._lowest += 1_000_000  # as seen on a server whose last transactions were lost
    assert await ear.ensure()
    await store.upkeep.wake(CHANNEL, "on")
    assert await ear.news() == ["on"]


async def test_what_every_node_has_read_is_deleted(ear: Ear, store: Store, look: Any) -> None:
    await store.upkeep.wake(CHANNEL, "old")
    await look.execute("UPDATE changes SET at = now() - interval '3 minutes'")
    await store.upkeep.wake(CHANNEL, "new")
    await store.upkeep.purge_changes()
    assert [row["payload"] for row in await look.fetch("SELECT payload FROM changes")] == ["new"]
