"""A person, as the OpenID provider describes them, and what a login at the provider needs. No I/O.

The login is the authorization code flow with PKCE. `LoginAttempt` is what the browser keeps between leaving for the
provider and coming back: the answer is for this attempt only if it has the same state, and the ID token is if it has
the same nonce.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

MOST_GROUPS = 500
LONGEST = 300
CLOCK_TOLERANCE = 60.0


class ClaimFault(Exception):  # noqa: N818 - it says what is wrong
    """A token or an answer of the provider is not acceptable; the message says why."""


class Person(NamedTuple):
    """`subject` never changes; `email` is None unless the provider has verified it."""

    subject: str
    name: str | None = None
    email: str | None = None
    groups: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """What a binding may call the person."""
        return [self.subject, *([self.email] if self.email else [])]

    @property
    def shown(self) -> str:
        return self.email or self.name or self.subject

    @property
    def bindable(self) -> str:
        """What a binding may call the person, for a shell. Never `name`, which people choose themselves."""
        return shlex.quote(self.names[-1])


class LoginAttempt(NamedTuple):
    """`verifier` is the secret of PKCE; `next` the page to show afterwards; `tenant` the one that was chosen."""

    state: str
    nonce: str
    verifier: str
    next: str = "/"
    tenant: str = ""


class ClientIdentity(NamedTuple):
    """This server as the provider knows it."""

    issuer: str
    client_id: str
    redirect_url: str
    scopes: Sequence[str]
    groups_claim: str


def challenge_of(verifier: str) -> str:
    """The PKCE challenge S256 of a verifier."""
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def authorization_url(endpoint: str, client: ClientIdentity, attempt: LoginAttempt) -> str:
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client.redirect_url,
        "scope": " ".join(client.scopes),
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": challenge_of(attempt.verifier),
        "code_challenge_method": "S256",
    }
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def check_id_token(claims: Mapping[str, Any], client: ClientIdentity, nonce: str | None, now: float) -> None:
    """Refuse claims that are not for this server, this login and this time. The signature was checked before.
    `nonce` None: a token that was refreshed, which needs none."""
    if claims.get("iss") != client.issuer:
        raise ClaimFault("the ID token is from another issuer")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if client.client_id not in audiences:
        raise ClaimFault("the ID token is for another client")
    if len(audiences) > 1 and claims.get("azp") != client.client_id:
        raise ClaimFault("the ID token was issued to another client")
    expires, issued = claims.get("exp"), claims.get("iat")
    if not isinstance(expires, int | float) or not isinstance(issued, int | float):
        raise ClaimFault("the ID token does not say when it was issued and expires")
    if expires + CLOCK_TOLERANCE <= now or issued - CLOCK_TOLERANCE > now:
        raise ClaimFault("the ID token has expired, or is from the future")
    if nonce is not None and claims.get("nonce") != nonce:
        raise ClaimFault("the ID token is of another login")
    if not _text(claims.get("sub")):
        raise ClaimFault("the ID token names nobody")


def joined(claims: Mapping[str, Any], about: Mapping[str, Any]) -> Mapping[str, Any]:
    """The claims of an ID token and of the userinfo, which counts first. That an address is verified is not believed of
    another address."""
    if "email" in about and about["email"] != claims.get("email"):
        claims = {name: value for name, value in claims.items() if name != "email_verified"}
    return {**claims, **about}


def person_of(claims: Mapping[str, Any], groups_claim: str) -> Person:
    """The person that these claims describe. What is too long or of another type is left out."""
    subject = _text(claims.get("sub"))
    if subject is None:
        raise ClaimFault("the provider names nobody")
    verified = claims.get("email_verified") is True
    given = claims.get(groups_claim)
    listed = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    groups = tuple(dict.fromkeys(group for group in listed[:MOST_GROUPS] if _text(group)))
    name = _text(claims.get("name")) or _text(claims.get("preferred_username"))
    return Person(subject, name, _text(claims.get("email")) if verified else None, groups)


def _text(value: object) -> str | None:
    usable = isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()
    return str(value) if usable else None
