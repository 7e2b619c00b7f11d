"""Only a proxy that the operator named may say who the client is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.requests import Request

from detent.api.client_addresses import ClientAddresses
from detent.api.limits import bucket_size
from detent.errors import UsageError
from detent.settings.settings import Settings
from tests.api.api_client import ApiClient
from tests.api.api_server import Readiness, serving
from tests.security.guessing import bearer, wrong_key
from tests.security.wire import connect, probes, request
from tests.support.waiting import until

FAILURES = int(bucket_size(Settings().failed_keys_per_second))
PROXIES = ClientAddresses(["10.0.0.0/8", "2001:db8:1::/48"])


async def guesses(api: ApiClient, forwarded: list[str]) -> list[int]:
    """The status of one wrong key for each value of X-Forwarded-For."""
    asked = (
        api.ask("GET", "/api/v1/jobs", headers={**bearer(wrong_key()), "X-Forwarded-For": value}) for value in forwarded
    )
    return [answer.status for answer in await asyncio.gather(*asked)]


async def test_a_client_that_names_other_addresses_is_still_one_client(database_url: str) -> None:
    async with serving(database_url, Readiness({}), host="0.0.0.0", requests_per_second=5.0) as api:
        assert 429 in await guesses(api, [f"192.0.2.{number}" for number in range(2 * FAILURES)])


async def test_a_trusted_proxy_names_its_clients_and_a_client_names_no_other(database_url: str) -> None:
    async with serving(database_url, Readiness({}), host="0.0.0.0", trusted_proxies=("127.0.0.1/32",)) as api:
        assert 429 in await guesses(api, ["192.0.2.1"] * 2 * FAILURES)
        assert await guesses(api, ["192.0.2.2"]) == [401]
        assert set(await guesses(api, [f"192.0.2.{number}, 192.0.2.3" for number in range(2 * FAILURES)])) == {401, 429}


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        ("192.0.2.9", {"X-Forwarded-For": "198.51.100.1"}, "192.0.2.9"),
        ("192.0.2.9", {"Forwarded": "for=198.51.100.1"}, "192.0.2.9"),
        ("127.0.0.1", {"X-Forwarded-For": "198.51.100.1"}, "127.0.0.1"),
        ("10.1.2.3", {}, "10.1.2.3"),
        ("10.1.2.3", {"X-Forwarded-For": "198.51.100.1"}, "198.51.100.1"),
        ("::ffff:10.1.2.3", {"X-Forwarded-For": "198.51.100.1"}, "198.51.100.1"),
        ("10.1.2.3", {"X-Forwarded-For": "203.0.113.5, 198.51.100.1"}, "198.51.100.1"),
        ("10.1.2.3", {"X-Forwarded-For": "203.0.113.5, 198.51.100.1, 10.9.9.9"}, "198.51.100.1"),
        ("10.1.2.3", {"X-Forwarded-For": "10.7.7.7, 10.9.9.9"}, "10.7.7.7"),
        ("10.1.2.3", {"X-Forwarded-For": "198.51.100.1, nonsense"}, "10.1.2.3"),
        ("10.1.2.3", {"X-Forwarded-For": "198.51.100.1, nonsense, 10.9.9.9"}, "10.9.9.9"),
        ("10.1.2.3", {"X-Forwarded-For": ""}, "10.1.2.3"),
        ("10.1.2.3", {"X-Forwarded-For": "198.51.100.1:4711"}, "198.51.100.1"),
        ("10.1.2.3", {"X-Forwarded-For": "[2001:db8:2::1]:4711"}, "2001:db8:2::1"),
        ("2001:db8:1::5", {"X-Forwarded-For": "2001:db8:2::1"}, "2001:db8:2::1"),
        ("10.1.2.3", {"Forwarded": 'for=203.0.113.5;proto=https, For="[2001:db8:2::1]:4711"'}, "2001:db8:2::1"),
        ("10.1.2.3", {"Forwarded": 'for="203.0.113.5, for=198.51.100.1'}, "198.51.100.1"),
        ("10.1.2.3", {"Forwarded": "for=203.0.113.5, for=unknown"}, "10.1.2.3"),
        ("10.1.2.3", {"Forwarded": "for=203.0.113.5, proto=https"}, "10.1.2.3"),
        ("10.1.2.3", {"Forwarded": "for=198.51.100.1", "X-Forwarded-For": "198.51.100.1"}, "198.51.100.1"),
        ("10.1.2.3", {"Forwarded": "for=203.0.113.5", "X-Forwarded-For": "198.51.100.1"}, "10.1.2.3"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_trusted_proxy(
    peer: str, headers: dict[str, str], client: str
) -> None:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    assert PROXIES.of(Request({"type": "http", "headers": raw, "client": (peer, 1)})) == client


def test_a_header_in_several_lines_is_one_list() -> None:
    raw = [(b"x-forwarded-for", b"203.0.113.5"), (b"x-forwarded-for", b"198.51.100.1")]
    assert PROXIES.of(Request({"type": "http", "headers": raw, "client": ("10.1.2.3", 1)})) == "198.51.100.1"


def test_a_connection_without_an_address_is_not_trusted() -> None:
    raw = [(b"x-forwarded-for", b"203.0.113.5")]
    assert PROXIES.of(Request({"type": "http", "headers": raw, "client": None})) == ""


async def test_a_trusted_proxy_may_have_more_than_half_of_the_connections() -> None:
    async with probes(max_connections=4, trusted_proxies=("127.0.0.2/32",)) as server:
        proxied = [await connect(server.url, "127.0.0.2") for _ in range(4)]
        await until(lambda: len(server.connections.connections) == 4)
        for client in proxied:
            assert (await client.ask(request("GET", "/livez"))).status == 200
            await client.close()


def test_trusted_proxies_are_networks(tmp_path: Path) -> None:
    def trusted(text: str) -> tuple[str, ...]:
        return Settings.load({}, {"DETENT_TRUSTED_PROXIES": text, "HOME": str(tmp_path)}, tmp_path).trusted_proxies

    assert trusted("10.0.0.0/8, 192.0.2.7,2001:db8::/32") == ("10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32")
    for text in ("10.0.0.1/8", "proxy.example.com", "*", "10.0.0.0/33"):
        with pytest.raises(UsageError, match=r"give one or more addresses or networks such as 10\.0\.0\.0/8"):
            trusted(text)
