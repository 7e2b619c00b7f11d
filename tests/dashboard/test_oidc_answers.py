"""What this server reads of the answers of an OpenID provider: all of them, up to a size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from aiohttp import web
from joserfc.jwk import RSAKey

from detent.dashboard.oidc_provider import LARGEST_ANSWER, OidcProvider, ProviderAway
from detent.domain.person import ClientIdentity

KEY = RSAKey.generate_key(2048, parameters={"kid": "one"})


async def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
async def sizes() -> AsyncIterator[tuple[str, dict[str, int]]]:
    """The issuer of a provider, and how many bytes its keys have besides the one that counts."""
    more = {"bytes": 0}
    routes = web.RouteTableDef()

    @routes.get("/.well-known/openid-configuration")
    async def configuration(request: web.Request) -> web.Response:
        issuer = f"http://{request.host}"
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint")
        return web.json_response({"issuer": issuer, **{name: f"{issuer}/{name}" for name in names}})

    @routes.get("/jwks_uri")
    async def keys(request: web.Request) -> web.Response:
        return web.json_response({"more": "x" * more["bytes"], "keys": [KEY.as_dict(private=False)]})

    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}", more
    await runner.cleanup()


def provider_at(issuer: str) -> OidcProvider:
    client = ClientIdentity(issuer, "detent", f"{issuer}/callback", ("openid",), "groups")
    return OidcProvider(client, None, now)


async def test_an_answer_that_comes_in_many_pieces_is_read_to_its_end(
    sizes: tuple[str, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.dashboard.oidc_provider.ANSWER_SECONDS", 60.0)
    issuer, more = sizes
    more["bytes"] = LARGEST_ANSWER - 10_000
    assert [key.kid for key in (await provider_at(issuer)._key_set(fresh=False)).keys] == ["one"]


async def test_an_answer_that_is_too_large_is_not_read_to_its_end(
    sizes: tuple[str, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.dashboard.oidc_provider.ANSWER_SECONDS", 60.0)
    issuer, more = sizes
    more["bytes"] = LARGEST_ANSWER
    with pytest.raises(ProviderAway, match="too large"):
        await provider_at(issuer)._key_set(fresh=False)
