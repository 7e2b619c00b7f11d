"""79 spellings of forbidden addresses, by every path on which a process calls a configured address.

Nothing is sent anywhere: a socket that would be created for one of them ends the call, and fails the test.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from detent.domain.run import Failed
from detent.domain.target_access import PRIVATE_TOO, PUBLIC_ONLY
from detent.errors import Unavailable, UsageError
from detent.targets.guard import AddressGuard, AddrInfo
from detent.targets.http import HttpTargetRunner
from detent.targets.messenger import Message, Messenger, check_address
from detent.targets.policies import FixedPolicy
from detent.upkeep import archive
from tests.security.spellings import ALWAYS, SPELLINGS, Spelling
from tests.targets.target_helpers import Sink, answer, failed, http_call

PORT = 8080


class Names(AbstractResolver):
    """Knows one name."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host.rstrip(".") != self._spelling.host.lower().rstrip("."):
            raise AssertionError(f"{host!r} was looked up for {self._spelling.host!r}")
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self._spelling.resolves
        ]

    async def close(self) -> None:
        pass


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[AddrInfo]]:
    """The addresses for which a socket was created; none of them is connected to."""
    made: list[AddrInfo] = []
    create = AddressGuard.open_socket

    def open_socket(self: AddressGuard, info: AddrInfo) -> socket.socket:
        create(self, info).close()
        made.append(info)
        raise OSError("not in a test")

    monkeypatch.setattr(AddressGuard, "open_socket", open_socket)
    yield made


async def by_job(spelling: Spelling, url: str) -> str:
    runner = HttpTargetRunner(FixedPolicy(PUBLIC_ONLY), resolver=Names(spelling))
    try:
        outcome = await runner(http_call(url))
    finally:
        await runner.close()
    assert isinstance(outcome, Failed) and not outcome.retryable, outcome
    return outcome.error


async def by_notice_of_a_job(spelling: Spelling, url: str) -> str:
    return await _sent(spelling, url, Message("notice", b"{}"), tenant=2)


async def by_notice_of_the_operator(spelling: Spelling, url: str) -> str:
    return _at_the_start("notify_url", url) or await _sent(spelling, url, Message("notice", b"{}"))


async def by_ping(spelling: Spelling, url: str) -> str:
    return _at_the_start("heartbeat_url", url) or await _sent(spelling, url, Message("ping", method="GET"))


async def by_archive(spelling: Spelling, url: str) -> str:
    try:
        archive.check_host(url)
        await archive.check_addresses(url)
    except (UsageError, Unavailable) as error:
        return error.message
    raise AssertionError(f"{url!r} would be called")


def _at_the_start(setting: str, url: str) -> str:
    """Why a process with this setting does not start."""
    try:
        check_address(setting, url)
    except UsageError as error:
        return error.message
    return ""


async def _sent(spelling: Spelling, url: str, message: Message, tenant: int | None = None) -> str:
    messenger = Messenger(FixedPolicy(PUBLIC_ONLY), resolver=Names(spelling))
    try:
        delivery = await messenger.send(message, url, tenant=tenant)
    finally:
        await messenger.close()
    assert not delivery.arrived and not delivery.retryable, delivery
    return delivery.error


TENANTS_PATHS = (by_job, by_notice_of_a_job)
OPERATORS_PATHS = (by_notice_of_the_operator, by_ping, by_archive)


def cases(paths: tuple[Any, ...], spellings: tuple[Spelling, ...]) -> list[Any]:
    """A few of each kind always, all of them in the long profile."""
    return [
        pytest.param(path, spelling, id=f"{path.__name__}-{number}", marks=() if number % 11 == 0 else pytest.mark.long)
        for path in paths
        for number, spelling in enumerate(spellings)
    ]


def test_there_are_79_spellings() -> None:
    assert len(set(SPELLINGS)) == 79


@pytest.mark.parametrize(("path", "spelling"), [*cases(TENANTS_PATHS, SPELLINGS), *cases(OPERATORS_PATHS, ALWAYS)])
async def test_a_forbidden_address_is_not_called_however_it_is_written(
    path: Callable[[Spelling, str], Awaitable[str]],
    spelling: Spelling,
    created: list[AddrInfo],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo

    async def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        """The archive's library looks names up by itself, as the system does; literals need no network."""
        if not spelling.resolves:
            return await look_up(host, port, flags=socket.AI_NUMERICHOST, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in spelling.resolves]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    for url in (f"http://{spelling.host}:{PORT}/", f"https://{spelling.host}/latest/meta-data/"):
        sentence = await path(spelling, url)
        assert sentence.endswith(".") and sentence.count("\n") == 0, sentence
    assert created == []


async def test_a_redirect_is_not_followed_to_another_address() -> None:
    async with Sink() as sink, Sink() as inside:
        sink.answer = answer("307 Temporary Redirect", b"", f"Location: {inside.url}/latest/meta-data/")
        runner, messenger = HttpTargetRunner(FixedPolicy(PRIVATE_TOO)), Messenger(FixedPolicy(PRIVATE_TOO))
        try:
            assert "redirects are not followed" in failed(await runner(http_call(sink.url))).error
            for tenant in (None, 2):
                assert not (await messenger.send(Message("ping", method="GET"), sink.url, tenant=tenant)).arrived
        finally:
            await runner.close()
            await messenger.close()
        assert (len(sink.received), inside.connections) == (3, 0)
