"""People who log in at the OpenID provider: their login, their session, and its end.

A login begins and ends in the same browser: a cookie that lives for ten minutes holds the state, the nonce and the
verifier of the attempt, and is deleted when the provider's answer comes. So an answer that was forged, or is sent a
second time, is refused. Afterwards the provider is asked again every few minutes, with the request that comes first, so
that a person who was removed there, or left a group, loses what they had here.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import secrets
from datetime import timedelta
from urllib.parse import urlencode

import msgspec

from detent.api.context import Api
from detent.api.limits import Limiter, network_of
from detent.dashboard.oidc_provider import (
    OidcProvider,
    ProviderAway,
    ProviderRefused,
    ProviderTokens,
    client_of,
)
from detent.domain.audit_event import Actor, NewEvent
from detent.domain.person import LoginAttempt, Person, authorization_url
from detent.errors import NotAuthorised, Unavailable
from detent.runtime.seal import BrokenSeal, seal, unseal
from detent.settings.readers import CALLBACK_PATH
from detent.store.audit_log import acting
from detent.store.person_sessions import PersonHolder
from detent.store.role_bindings import TenantRoles
from detent.telemetry.log import logger

log = logger("dashboard")

ATTEMPT_COOKIE = "detent_login"
ATTEMPT_SECONDS = 600
# How many checks may fail, because the provider is away, before the session ends.
CHECKS_MISSED = 3
# Of one network: each answer that is not refused at once makes this server ask the provider.
ANSWERS_PER_SECOND = 5.0
# Less than a page may take: a provider that hangs must not look like a database that does.
CHECK_SECONDS = 4.0


class RefusedLogin(NotAuthorised):
    """The person, or whoever sent the answer, may not log in."""


class LoginUnavailable(Unavailable):
    """Nobody can log in at the provider now."""


class People:
    def __init__(self, api: Api, provider: OidcProvider) -> None:
        self._api = api
        self._sessions = api.store.person_sessions
        self.provider = provider
        self._answers = Limiter(ANSWERS_PER_SECOND)
        self._check_after = timedelta(seconds=api.settings.oidc_check_seconds)
        self._valid_for = self._check_after * CHECKS_MISSED

    @classmethod
    def of(cls, api: Api) -> People | None:
        """None: no provider is set."""
        client = client_of(api.settings)
        if client is None:
            return None
        return cls(api, OidcProvider(client, api.settings.oidc_client_secret, api.store.upkeep.now))

    # -- login

    async def begin(self, next_path: str, tenant: str) -> tuple[str, str]:
        """Where the browser goes, and what its cookie is meanwhile."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        attempt = LoginAttempt(state, nonce, verifier, next_path, tenant[:63])
        try:
            document = await self.provider.document()
        except ProviderAway as error:
            raise _away(error) from error
        return authorization_url(document.authorization_endpoint, self.provider.client, attempt), _cookie(attempt)

    async def finish(self, cookie: str, answer: dict[str, str], actor: Actor) -> tuple[str, str]:
        """The token of the new session, and the page to show. `answer`: the query that the provider sent the browser
        back with."""
        self._answers.take(network_of(actor.address or ""))
        try:
            attempt, code = self._answered(_attempt(cookie), answer)
            person, tokens = await self.provider.log_in(code, attempt)
        except ProviderAway as error:
            raise _away(error) from error
        except ProviderRefused as error:
            await self._refuse(actor, None, str(error))
            raise RefusedLogin(f"The login was refused: {error}. Log in again.") from error
        except RefusedLogin as error:
            await self._refuse(actor, None, error.message)
            raise
        where = await self._tenant(person, attempt.tenant, actor)
        with acting(actor._replace(kind="user", id=person.subject, name=person.shown)):
            token = await self._sessions.open(
                person,
                lambda token: seal(token, _text(tokens)),
                tenant=where.tenant,
                check_after=self._check_after,
                valid_for=self._valid_for,
            )
        return token, attempt.next

    def _answered(self, attempt: LoginAttempt | None, answer: dict[str, str]) -> tuple[LoginAttempt, str]:
        """The attempt of this browser, and the code of the answer to it."""
        state = answer.get("state", "")
        if attempt is None or not hmac.compare_digest(attempt.state.encode(), state.encode()):
            raise RefusedLogin("This login was not begun in this browser, or was finished already: log in again.")
        if answer.get("iss", self.provider.client.issuer) != self.provider.client.issuer:
            raise RefusedLogin("This answer is from another provider: log in again.")
        if "code" not in answer:
            reason = answer.get("error", "it sent no code")[:100]
            raise RefusedLogin(f"The provider did not log you in ({reason}): log in again.")
        return attempt, answer["code"]

    async def _tenant(self, person: Person, wanted: str, actor: Actor) -> TenantRoles:
        found = await self._api.store.role_bindings.of_person(person.names, person.groups)
        chosen = [each for each in found if wanted in ("", each.name)]
        if not chosen:
            await self._refuse(actor._replace(kind="user", id=person.subject, name=person.shown), None, "no role")
            where = f" in the tenant {wanted!r}" if wanted else ""
            raise RefusedLogin(
                f"{person.shown} has no role{where}: ask an administrator to run `detent role bind user "
                f"{person.bindable} viewer`, or to bind one of your groups."
            )
        return chosen[0]

    async def _refuse(self, actor: Actor, tenant: int | None, reason: str) -> None:
        event = NewEvent("session.refuse", tenant, "user", actor.id, actor.name, after={"reason": reason})
        await self._api.refusals.record(event, actor)

    # -- sessions

    async def checked(self, token: str, digest: bytes, holder: PersonHolder) -> PersonHolder | None:
        """The holder, after the provider was asked if that is due; None: the session has ended."""
        sealed = await self._sessions.take_check(digest) if holder.due else None
        if sealed is None:
            return holder
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                person, tokens = await self.provider.check(holder.person, _tokens(unseal(token, sealed)))
        except (ProviderAway, TimeoutError) as error:
            log.warning("the OpenID provider is away; sessions are checked later", error=str(error))
            return holder
        except (ProviderRefused, BrokenSeal) as error:
            log.info("a session has ended: the OpenID provider no longer confirms it", error=str(error))
            await self._sessions.close(digest, holder.person, "session.revoke", tenant=holder.tenant)
            self._api.access.check_now()
            return None
        await self._sessions.confirm(
            digest,
            person,
            seal(token, _text(tokens)),
            check_after=self._check_after,
            valid_for=self._valid_for,
        )
        return await self._sessions.holder(digest)

    async def log_out(self, token: str, digest: bytes) -> str | None:
        """End the session; returns where the browser ends that of the provider, if it can."""
        holder = await self._sessions.holder(digest)
        if holder is None:
            return None
        await self._sessions.close(digest, holder.person, "session.close", tenant=holder.tenant)
        self._api.access.check_now()
        try:
            end = (await self.provider.document()).end_session_endpoint
        except ProviderAway:
            return None
        if end is None:
            return None
        client = self.provider.client
        back = client.redirect_url.removesuffix(CALLBACK_PATH) + "/login"
        query = {"client_id": client.client_id, "post_logout_redirect_uri": back}
        try:
            hint = _tokens(unseal(token, holder.tokens)).id
        except BrokenSeal:
            hint = None
        if hint is not None:
            query["id_token_hint"] = hint
        return f"{end}{'&' if '?' in end else '?'}{urlencode(query)}"


def _away(error: ProviderAway) -> LoginUnavailable:
    log.warning("nobody can log in at the OpenID provider", error=str(error))
    return LoginUnavailable(f"The login provider cannot be used now: {error}. Try again later, or log in with a key.")


def _cookie(attempt: LoginAttempt) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(attempt)).decode()


def _attempt(cookie: str) -> LoginAttempt | None:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cookie.encode()), type=LoginAttempt)
    except (ValueError, msgspec.DecodeError):
        return None


def _text(tokens: ProviderTokens) -> str:
    return msgspec.json.encode(tokens).decode()


def _tokens(text: str) -> ProviderTokens:
    return msgspec.json.decode(text, type=ProviderTokens)
