"""Calls of a process that cannot read the allow lists: nothing private is called, and no run fails because of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from detent.domain.run import NotBegun
from detent.domain.target_access import NOTHING_READ, AllowLists
from detent.errors import Unavailable
from detent.store import Store
from detent.targets import http
from detent.targets.http import HttpTargetRunner
from detent.targets.messenger import Message, Messenger
from detent.targets.policies import FRESH_SECONDS, LAST_KNOWN_SECONDS, VALID_SECONDS, ClusterPolicies
from tests.support.tenants import add_job, add_ready
from tests.support.waiting import until
from tests.targets.target_helpers import Sink, failed, http_call, succeeded

DATABASE_PORT = "http://93.184.216.34:9200/"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Lists:
    """The allow lists of a database that may be away, or not answer."""

    def __init__(self, patterns: dict[int, tuple[str, ...]] | None = None, *, away: bool = False) -> None:
        self.patterns = patterns or {}
        self.away = away
        self.answers = asyncio.Event()
        self.answers.set()
        self.reads = 0

    async def allow_lists(self) -> AllowLists:
        self.reads += 1
        await self.answers.wait()
        if self.away:
            raise Unavailable("no database")
        return AllowLists(False, self.patterns)

    async def name_of(self, _tenant: int) -> str:
        raise Unavailable("no database")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "UNREAD_PAUSE_SECONDS", 0.0)


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink() as server:
        yield server


def not_called(outcome: Any) -> None:
    assert isinstance(outcome, NotBegun), outcome
    assert "could not be read" in outcome.why


async def test_the_last_lists_hold_for_a_while_and_then_private_addresses_are_not_called(sink: Sink) -> None:
    lists, clock = Lists({2: (f"127.0.0.1:{sink.port}",)}), Clock()
    runner = HttpTargetRunner(ClusterPolicies(lists, clock))
    for number in (1, 2):
        succeeded(await runner(http_call(sink.url, tenant=number)))
    lists.away, clock.now = True, LAST_KNOWN_SECONDS - 1
    succeeded(await runner(http_call(sink.url)))  # a database that restarts stops no call
    clock.now = LAST_KNOWN_SECONDS
    for number in (1, 2, 3):
        not_called(await runner(http_call(sink.url, tenant=number)))
    lists.away = False
    succeeded(await runner(http_call(sink.url)))
    await runner.close()
    assert len(sink.received) == 4


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/", DATABASE_PORT], ids=["private", "a guarded port"])
async def test_a_process_that_never_read_the_lists_refuses_nothing_for_good_that_a_list_may_allow(url: str) -> None:
    lists = Lists(away=True)
    runner, messenger = HttpTargetRunner(ClusterPolicies(lists)), Messenger(ClusterPolicies(lists))
    try:
        not_called(await runner(http_call(url, tenant=2)))
        delivery = await messenger.send(Message("notice", b"{}"), url, tenant=2)
        assert not delivery.arrived and delivery.retryable
        lists.away = False
        assert not failed(await runner(http_call(url, tenant=2))).retryable
    finally:
        await runner.close()
        await messenger.close()


def test_without_lists_public_addresses_are_called_and_metadata_is_refused_for_good() -> None:
    assert NOTHING_READ.fault("93.184.216.34", 443) is None
    never = NOTHING_READ.fault("169.254.169.254", 80)
    assert never is not None and not never.retryable


async def test_a_run_without_retries_waits_in_its_queue_until_the_lists_can_be_read(
    look: Any, store: Store, start: Any, sink: Sink
) -> None:
    lists = Lists(away=True)
    runner = HttpTargetRunner(ClusterPolicies(lists))
    target = {"type": "http", "url": sink.url}
    await add_ready(look, *await add_job(store, look, 1, "internal", target=target, max_retries=0), 1)
    session = await start(runner)
    await until(lambda: lists.reads > 4, what="several calls")
    lists.away = False
    await until(lambda: look.fetchval("SELECT count(*) = 1 FROM run_history"), what="the end of the run")
    row = await look.fetchrow("SELECT status, attempt FROM run_history")
    assert (tuple(row), len(sink.received)) == ((1, 1), 1)
    await session.close(0)
    await runner.close()


async def test_no_call_waits_for_a_database_that_hangs(sink: Sink) -> None:
    lists, clock = Lists(), Clock()
    runner = HttpTargetRunner(ClusterPolicies(lists, clock))
    succeeded(await runner(http_call(sink.url)))
    lists.answers.clear()
    for age in (FRESH_SECONDS, VALID_SECONDS):
        clock.now = age
        succeeded(await runner(http_call(sink.url)))
    lists.answers.set()
    await runner.close()
