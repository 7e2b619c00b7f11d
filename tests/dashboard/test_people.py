"""People log in at a real OpenID provider: groups to roles, forged and repeated answers, revocation, logout."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from yarl import URL

from detent.contract.role_binding import RoleBindingSpec
from detent.dashboard.oidc_provider import OidcProvider, ProviderRefused, client_of
from detent.domain.roles import Role, SubjectKind
from detent.errors import UsageError
from detent.settings.settings import Settings
from tests.dashboard.oidc import CALLBACK, OpenIdProvider, installed_provider, running_provider
from tests.dashboard.pages import Pages, Shown, serving
from tests.support.browsing import Browser

# The first test also waits for npm, which takes half a minute on an idle machine.
pytestmark = pytest.mark.timeout(420)
PATIENCE = 60.0

ADA = {"name": "Ada", "email": "ada@example.com", "email_verified": True, "groups": ["ops", "everybody"]}


@pytest.fixture(scope="session")
def provider_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_provider(tmp_path_factory.mktemp("provider"))


@pytest.fixture
def provider(provider_folder: Path) -> Iterator[OpenIdProvider]:
    with running_provider(provider_folder) as running:
        yield running


@pytest.fixture
async def pages(database_url: str, provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pages]:
    """A server that requires keys, and whose people log in at the provider. Both may be slow on a busy machine."""
    monkeypatch.setattr("detent.dashboard.oidc_provider.ANSWER_SECONDS", PATIENCE)
    monkeypatch.setattr("detent.dashboard.people.CHECK_SECONDS", PATIENCE)
    monkeypatch.setattr("detent.dashboard.app.PAGE_SECONDS", PATIENCE)
    settings = {**provider.settings, "port": provider.client_port, "require_keys": True}
    async with serving(database_url, **settings) as served:
        yield served


async def bind(pages: Pages, kind: SubjectKind, subject: str, role: Role, **limit: str) -> None:
    spec = RoleBindingSpec(subject_kind=kind, subject=subject, role=role, **limit)
    await pages.store.role_bindings.add(spec, tenant=1, by="test")


async def follow(pages: Pages, path: str) -> Shown:
    """As a browser does, through the provider and back."""
    async with pages.session.get(pages.url + path) as response:
        return Shown(response.status, response.headers, await response.text())


async def events(sql: Any) -> list[tuple[Any, ...]]:
    return [
        tuple(row)
        for row in await sql.fetch(
            "SELECT action, actor_kind, actor_id, object_id, after->>'reason' FROM audit_events"
            " WHERE action LIKE 'session.%' ORDER BY id"
        )
    ]


async def check_is_due(sql: Any) -> None:
    await sql.execute("UPDATE sessions SET check_at = now()")


# --- login ---


async def test_a_group_of_the_provider_has_the_role_that_is_bound_to_it(
    pages: Pages, provider: OpenIdProvider, sql: Any
) -> None:
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "group", "ops", "operator")
    assert "Log in with your account" in (await pages.get("/login")).text

    shown = await follow(pages, "/login/oidc?next=/jobs")

    assert shown.status == 200
    assert 'content="0; url=/jobs"' in shown.text
    page = await pages.get("/jobs")
    assert page.status == 200
    assert "ada@example.com · operator" in page.text
    job = {"name": "x", "kind": "every", "every": "1h", "target": "http", "url": "http://127.0.0.1:9/"}
    assert (await pages.post("/jobs", csrf=page.csrf, **job)).status == 403
    assert await events(sql) == [("session.open", "user", "ada", "ada", None)]


@pytest.mark.parametrize("subject", ["ada", "ada@example.com"])
async def test_a_person_has_the_role_that_is_bound_to_them(
    pages: Pages, provider: OpenIdProvider, subject: str
) -> None:
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "user", subject, "editor", queue="mail")
    await follow(pages, "/login/oidc")
    assert (await pages.get("/")).headers["Location"] == "/jobs"  # the overview is about all jobs
    assert "· editor" in (await pages.get("/jobs")).text
    assert (await pages.get("/cluster")).status == 403


async def test_an_address_that_the_provider_has_not_verified_names_nobody(
    pages: Pages, provider: OpenIdProvider, sql: Any
) -> None:
    await provider.set_people("eve", eve={"email": "ada@example.com", "email_verified": False})
    await bind(pages, "user", "ada@example.com", "admin")
    shown = await follow(pages, "/login/oidc")
    assert shown.status == 403
    assert "eve has no role" in unescape(shown.text)
    assert (await pages.get("/jobs")).status == 303
    assert await events(sql) == [("session.refuse", "user", "eve", "eve", "no role")]


async def test_a_login_that_the_provider_denies_is_refused(pages: Pages, provider: OpenIdProvider) -> None:
    await provider.set_people(None)
    shown = await follow(pages, "/login/oidc")
    assert shown.status == 403
    assert "The provider did not log you in (access_denied)" in shown.text


# --- forged and repeated answers ---


async def stopped_before_callback(pages: Pages) -> str:
    """The address of the callback that the provider sends the browser to, which it has not followed yet."""
    address = f"{pages.url}/login/oidc"
    for _ in range(12):
        async with pages.session.get(address, allow_redirects=False) as response:
            address = str(response.url.join(URL(response.headers["Location"], encoded=True)))
        if urlsplit(address).path == CALLBACK:
            return address
    raise AssertionError(f"the provider did not send the browser back, but to {address}")


@pytest.mark.parametrize("what", ["another state", "another browser", "another issuer", "no code"])
async def test_an_answer_that_is_not_to_this_login_is_refused(
    pages: Pages, provider: OpenIdProvider, sql: Any, what: str
) -> None:
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "group", "ops", "admin")
    address = await stopped_before_callback(pages)
    given = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    match what:
        case "another state":
            given["state"] = "x" * 43
        case "another browser":
            pages.session.cookie_jar.clear()
        case "another issuer":
            given["iss"] = "https://evil.example"
        case "no code":
            del given["code"]

    async with pages.session.get(pages.url + CALLBACK, params=given, allow_redirects=False) as response:
        assert response.status == 403
        assert "detent_session" not in response.cookies
    assert (await pages.get("/jobs")).status == 303
    ((action, *_),) = await events(sql)
    assert action == "session.refuse"


async def test_an_answer_counts_once(pages: Pages, provider: OpenIdProvider) -> None:
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "group", "ops", "admin")
    address = await stopped_before_callback(pages)
    attempt = pages.session.cookie_jar.filter_cookies(URL(address))["detent_login"].value
    async with pages.session.get(address) as response:
        assert response.status == 200
    async with pages.session.get(address) as again:  # the cookie is gone
        assert again.status == 403
    cookies = {"detent_login": attempt}
    async with aiohttp.ClientSession(cookies=cookies) as thief, thief.get(address) as stolen:  # the code is used up
        assert stolen.status == 403
        assert "The login was refused: it answers 400" in await stolen.text()


@pytest.mark.parametrize("what", ["another key", "no signature", "another nonce", "another client", "expired"])
async def test_an_id_token_that_is_not_for_this_login_is_refused(
    pages: Pages, provider: OpenIdProvider, what: str
) -> None:
    client = client_of(Settings(**provider.settings))
    assert client is not None
    asked = OidcProvider(client, None, pages.store.upkeep.now)
    known = (await asked._key_set(fresh=False)).keys[0]
    now = int(time.time())
    audience, expires = "shop" if what == "another client" else "detent", now - 600 if what == "expired" else now + 60
    claims = {"iss": provider.issuer, "aud": audience, "sub": "ada", "nonce": "n", "iat": now, "exp": expires}
    key = RSAKey.generate_key(2048, parameters={"kid": known.kid})
    if what not in ("another key", "no signature"):
        asked._keys = (asked._now(), key)
    token = jwt.encode({"alg": "RS256", "kid": known.kid}, claims, key)
    if what == "no signature":
        head = "eyJhbGciOiJub25lIn0"  # {"alg":"none"}
        token = f"{head}.{token.split('.')[1]}."

    with pytest.raises(ProviderRefused):
        await asked._verified(token, "other" if what == "another nonce" else "n")


# --- afterwards ---


async def test_a_person_who_left_a_group_loses_its_role(pages: Pages, provider: OpenIdProvider, sql: Any) -> None:
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "group", "ops", "operator")
    await bind(pages, "group", "everybody", "viewer")
    await follow(pages, "/login/oidc")
    assert "· operator" in (await pages.get("/jobs")).text

    await provider.set_people("ada", ada={**ADA, "groups": ["everybody"]})
    await check_is_due(sql)

    assert "· viewer" in (await pages.get("/jobs")).text


async def test_a_person_who_is_removed_at_the_provider_is_logged_out(
    pages: Pages, provider: OpenIdProvider, sql: Any
) -> None:
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "user", "ada", "admin")
    await follow(pages, "/login/oidc")

    await provider.set_people(None)
    await check_is_due(sql)

    assert (await pages.get("/jobs")).status == 303
    assert [event[0] for event in await events(sql)] == ["session.open", "session.revoke"]
    assert await sql.fetchval("SELECT count(*) FROM sessions") == 0


async def test_a_role_that_is_taken_away_ends_at_once(pages: Pages, provider: OpenIdProvider) -> None:
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "user", "ada", "admin")
    await follow(pages, "/login/oidc")
    ((binding,), _) = await pages.store.role_bindings.list(tenant=1)

    await pages.store.role_bindings.remove(binding.id, tenant=1)

    shown = await pages.get("/jobs")
    assert shown.status == 403
    assert "You have no role" in shown.text


async def test_a_logout_ends_both_sessions(pages: Pages, provider: OpenIdProvider, sql: Any) -> None:
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "user", "ada", "viewer")
    await follow(pages, "/login/oidc")
    csrf = (await pages.get("/jobs")).csrf

    shown = await pages.post("/logout", csrf=csrf)

    assert shown.status == 200
    assert f"{provider.issuer}/session/end?" in shown.text
    assert "id_token_hint=" in shown.text
    assert (await pages.get("/jobs")).status == 303
    assert [event[0] for event in await events(sql)] == ["session.open", "session.close"]


async def test_the_tokens_of_the_provider_cannot_be_read_in_the_database(
    pages: Pages, provider: OpenIdProvider, sql: Any
) -> None:
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "user", "ada", "viewer")
    await follow(pages, "/login/oidc")
    (row,) = await sql.fetch("SELECT * FROM sessions")
    stored = repr(dict(row))
    assert "access" not in stored
    assert "eyJ" not in stored  # as every JWT begins


async def test_an_open_page_ends_when_its_session_is_to_be_checked_and_nobody_does(
    pages: Pages, provider: OpenIdProvider, sql: Any
) -> None:
    """The browser then loads the page again, and that request asks the provider."""
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "user", "ada", "viewer")
    await follow(pages, "/login/oidc")
    digest = await sql.fetchval("SELECT digest FROM sessions")

    assert (await pages.store.web_sessions.ended([], [digest])).sessions == frozenset()
    await sql.execute("UPDATE sessions SET check_at = now() - interval '1 minute'")
    assert (await pages.store.web_sessions.ended([], [digest])).sessions == {digest}
    assert (await pages.get("/jobs")).status == 200
    assert (await pages.store.web_sessions.ended([], [digest])).sessions == frozenset()


async def test_a_browser_logs_in_at_another_site_and_out_of_both(
    pages: Pages, provider: OpenIdProvider, browse: Callable[..., AbstractAsyncContextManager[Browser]]
) -> None:
    """A browser keeps the cookie of the session from requests that another site led to, and the policy of the pages
    from following a form to another site: both are only seen in a real one."""
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "user", "ada", "viewer")
    async with browse(pages.url) as browser:
        page = browser.page
        await browser.open("/jobs?search=tag%3Ax")
        await page.click("text=Log in with your account")
        await page.wait_for_selector("text=ada@example.com · viewer")
        assert page.url == f"{pages.url}/jobs?search=tag%3Ax"

        await page.click("text=Log out")
        await page.click("text=Yes, sign me out")
        await page.wait_for_url(f"{pages.url}/login")
        await provider.set_people(None)
        await page.click("text=Log in with your account")
        await page.wait_for_selector("text=The provider did not log you in")
        refused = [f"403 for {page.url}", "error: Failed to load resource"]
        others = [each for each in browser.complaints if not each.startswith(tuple(refused))]
        browser.complaints = [each for each in others if provider.issuer not in each]


# --- the provider is away ---


async def test_while_the_provider_is_away_keys_still_log_in_and_sessions_go_on(
    pages: Pages, provider: OpenIdProvider, sql: Any
) -> None:
    await provider.set_people("ada", ada=ADA)
    await bind(pages, "user", "ada", "viewer")
    await follow(pages, "/login/oidc")
    await sql.execute("UPDATE sessions SET valid_until = now() + interval '1 minute', check_at = now()")
    provider.stop()

    assert (await pages.get("/jobs")).status == 200
    await sql.execute("UPDATE sessions SET valid_until = now(), check_at = now()")
    assert (await pages.get("/jobs")).status == 303
    key = await pages.store.keys.add("read", tenant=1)
    assert (await pages.post("/login", key=key.key, next="/jobs")).status == 303
    assert (await pages.get("/jobs")).status == 200


async def test_a_login_while_the_provider_is_away_is_answered_in_one_sentence(
    database_url: str, provider: OpenIdProvider
) -> None:
    provider.stop()
    async with serving(database_url, **provider.settings, require_keys=True) as pages:
        shown = await pages.get("/login/oidc")
    assert shown.status == 503
    assert "The login provider cannot be used now" in shown.text
    assert "or log in with a key" in shown.text


def test_settings_of_the_provider_belong_together() -> None:
    with pytest.raises(UsageError, match="belong together"):
        client_of(Settings(oidc_issuer="https://login.example.com"))


@pytest.mark.parametrize("address", ["https://d.example.com", "ftp://d.example.com/login/oidc/callback", "x"])
def test_an_address_that_is_not_the_callback_is_refused_at_start(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"DETENT_OIDC_REDIRECT_URL is .*: give an address such as https://detent"):
        Settings.load({}, {"DETENT_OIDC_REDIRECT_URL": address, "HOME": str(tmp_path)}, tmp_path)
