"""The OpenID provider: what it says about itself, and what it says about the people who log in there.

Every answer is checked before it is believed: the issuer, the signature of the ID token with the provider's own keys,
and that the ID token and the userinfo are about the same person. Only asymmetric signatures are accepted, so nobody can
sign with a secret that this server has, or not at all.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, cast
from urllib.parse import quote_plus

import aiohttp
import msgspec

from detent.domain.person import ClaimFault, ClientIdentity, LoginAttempt, Person, check_id_token, joined, person_of
from detent.errors import UsageError
from detent.settings.settings import Settings

ANSWER_SECONDS = 5.0
LARGEST_ANSWER = 1_048_576
# The provider may move its endpoints or change its keys.
KNOWN_SECONDS = 3600.0
# An ID token with an unknown key is a reason to ask for the keys again, but not more often than this.
KEYS_SECONDS = 10.0
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")


class ProviderAway(Exception):  # noqa: N818 - it says what it is
    """The provider cannot be asked now: it does not answer, or not as a provider does."""


class ProviderRefused(Exception):  # noqa: N818 - as above
    """The provider does not accept the code or the token any more."""


class ProviderTokens(NamedTuple):
    """What the provider gave for a login; `refresh` gets new ones, if the provider gives it."""

    access: str
    refresh: str | None = None
    id: str | None = None


class ProviderDocument(msgspec.Struct):
    """The parts of the discovery document that are used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str
    end_session_endpoint: str | None = None


def client_of(settings: Settings) -> ClientIdentity | None:
    """None: nobody logs in at a provider."""
    given = (settings.oidc_issuer, settings.oidc_client_id, settings.oidc_redirect_url)
    if given == (None, None, None):
        return None
    issuer, client_id, redirect_url = given
    if issuer is None or client_id is None or redirect_url is None:
        raise UsageError(
            "oidc_issuer, oidc_client_id and oidc_redirect_url belong together, and one is missing: set all three, or "
            "none.",
            "/oidc_issuer",
        )
    return ClientIdentity(issuer, client_id, redirect_url, settings.oidc_scopes, settings.oidc_groups_claim)


class OidcProvider:
    def __init__(
        self,
        client: ClientIdentity,
        secret: str | None,
        database_time: Callable[[], Awaitable[datetime]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`secret` None: the provider knows this server as a public client, and PKCE alone proves the login."""
        self.client = client
        self._secret = secret
        self._database_time = database_time
        self._now = now
        self._document: tuple[float, ProviderDocument] | None = None
        self._keys: tuple[float, Any] | None = None

    async def document(self) -> ProviderDocument:
        if self._document is None or self._now() >= self._document[0]:
            base = self.client.issuer.rstrip("/")
            raw = await self._ask("GET", f"{base}/.well-known/openid-configuration")
            try:
                found = msgspec.convert(raw, ProviderDocument)
            except msgspec.ValidationError as error:
                raise ProviderAway(f"its configuration cannot be used ({error})") from error
            if found.issuer != self.client.issuer:
                raise ProviderAway(f"it calls itself {found.issuer}, and oidc_issuer is {self.client.issuer}")
            self._document = (self._now() + KNOWN_SECONDS, found)
        return self._document[1]

    async def log_in(self, code: str, attempt: LoginAttempt) -> tuple[Person, ProviderTokens]:
        """Exchange the code of a login for the person who logged in."""
        grant = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.client.redirect_url,
            "code_verifier": attempt.verifier,
        }
        answer = await self._tokens(grant)
        claims = await self._verified(answer.get("id_token"), attempt.nonce)
        tokens = _tokens_of(answer, None)
        return await self._person(claims, tokens), tokens

    async def check(self, person: Person, tokens: ProviderTokens) -> tuple[Person, ProviderTokens]:
        """Ask whether the person may still log in, and what is known about them now."""
        claims: Mapping[str, Any] = {"sub": person.subject}
        if tokens.refresh is not None:
            answer = await self._tokens({"grant_type": "refresh_token", "refresh_token": tokens.refresh})
            tokens = _tokens_of(answer, tokens)
            if answer.get("id_token") is not None:
                claims = await self._verified(answer["id_token"], None)
        found = await self._person(claims, tokens)
        if found.subject != person.subject:
            raise ProviderRefused("it answers about another person")
        return found, tokens

    async def _person(self, claims: Mapping[str, Any], tokens: ProviderTokens) -> Person:
        document = await self.document()
        headers = {"Authorization": f"Bearer {tokens.access}"}
        about = await self._ask("GET", document.userinfo_endpoint, headers=headers)
        if about.get("sub") != claims.get("sub"):
            raise ProviderRefused("its userinfo is about another person")
        try:
            return person_of(joined(claims, about), self.client.groups_claim)
        except ClaimFault as fault:
            raise ProviderRefused(str(fault)) from fault

    async def _tokens(self, grant: dict[str, str]) -> dict[str, Any]:
        document = await self.document()
        headers = {}
        if self._secret is None:
            grant["client_id"] = self.client.client_id
        else:
            headers["Authorization"] = _basic(self.client.client_id, self._secret)
        answer = await self._ask("POST", document.token_endpoint, data=grant, headers=headers)
        if not isinstance(answer.get("access_token"), str):
            raise ProviderAway("its answer has no access token")
        return answer

    async def _verified(self, text: object, nonce: str | None) -> Mapping[str, Any]:
        """The claims of an ID token."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        if not isinstance(text, str):
            raise ProviderRefused("its answer has no ID token")
        now = (await self._database_time()).timestamp()
        for fresh in (False, True):
            keys = await self._key_set(fresh=fresh)
            try:
                claims = jwt.decode(text, keys, algorithms=list(ALGORITHMS)).claims
                check_id_token(claims, self.client, nonce, now)
            except ClaimFault as fault:
                raise ProviderRefused(str(fault)) from fault
            except (JoseError, ValueError) as error:
                if fresh:
                    raise ProviderRefused("the signature of the ID token is not its own") from error
            else:
                return dict(claims)
        raise AssertionError("the second attempt returns or raises")

    async def _key_set(self, *, fresh: bool) -> Any:
        from joserfc.jwk import KeySet

        known_for = KEYS_SECONDS if fresh else KNOWN_SECONDS
        if self._keys is None or self._now() >= self._keys[0] + known_for:
            raw = await self._ask("GET", (await self.document()).jwks_uri)
            found = [key for each in raw.get("keys") or () if (key := _key(each)) is not None]
            if not found:
                raise ProviderAway("none of its keys can be used")
            self._keys = (self._now(), KeySet(found))
        return self._keys[1]

    async def _ask(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        """The JSON object that it answers. Redirects are not followed: a code or a token would go elsewhere."""
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                aiohttp.ClientSession() as session,
                session.request(method, url, allow_redirects=False, **options) as response,
            ):
                raw = await _all_of(response.content)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ProviderAway(f"it does not answer ({type(error).__name__})") from error
        return _object(response.status, raw)


async def _all_of(content: aiohttp.StreamReader) -> bytes:
    """One read returns what has arrived, which may be a part of the answer."""
    raw = bytearray()
    async for part in content.iter_any():
        raw += part
        if len(raw) > LARGEST_ANSWER:
            raise ProviderAway("its answer is too large")
    return bytes(raw)


def _key(raw: object) -> Any:
    """None: a key of a kind that is not known here, which is no reason to refuse the others."""
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    try:
        return JWKRegistry.import_key(cast("Any", raw))
    except (JoseError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _basic(client_id: str, secret: str) -> str:
    """Both are encoded as in a form first (RFC 6749, section 2.3.1)."""
    return f"Basic {base64.b64encode(f'{quote_plus(client_id)}:{quote_plus(secret)}'.encode()).decode()}"


def _object(status: int, raw: bytes) -> dict[str, Any]:
    if status in (400, 401, 403):
        raise ProviderRefused(f"it answers {status}")
    try:
        found = msgspec.json.decode(raw) if status == 200 else None
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict):
        raise ProviderAway(f"it answers {status}, and no JSON object")
    return found


def _tokens_of(answer: Mapping[str, Any], before: ProviderTokens | None) -> ProviderTokens:
    """A provider that gives no new refresh token means the old one to be used again."""
    refresh, id_token = answer.get("refresh_token"), answer.get("id_token")
    return ProviderTokens(
        answer["access_token"],
        refresh if isinstance(refresh, str) else before and before.refresh,
        id_token if isinstance(id_token, str) else before and before.id,
    )
