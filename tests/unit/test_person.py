"""What is believed of an OpenID provider's claims, and the parts of a login that are computed."""

from __future__ import annotations

from typing import Any

import pytest

from detent.domain.person import (
    ClaimFault,
    ClientIdentity,
    LoginAttempt,
    Person,
    authorization_url,
    challenge_of,
    check_id_token,
    joined,
    person_of,
)

CLIENT = ClientIdentity("https://login.example.com", "detent", "https://d.example/cb", ("openid",), "groups")
NOW = 1_800_000_000.0
GOOD = {"iss": CLIENT.issuer, "aud": "detent", "sub": "ada", "iat": NOW, "exp": NOW + 300, "nonce": "n"}


def test_a_verified_address_is_the_one_that_was_verified() -> None:
    token = {"sub": "7", "email": "eve@x.org", "email_verified": True}
    assert person_of(joined(token, {"sub": "7", "email": "ada@x.org"}), "groups").email is None
    assert person_of(joined(token, {"sub": "7", "email": "eve@x.org"}), "groups").email == "eve@x.org"
    assert person_of(joined(token, {"sub": "7", "groups": ["ops"]}), "groups").email == "eve@x.org"
    verified = {"sub": "7", "email": "ada@x.org", "email_verified": True}
    assert person_of(joined({"sub": "7"}, verified), "groups").email == "ada@x.org"


def test_a_command_never_names_a_person_by_a_name_that_they_choose_themselves() -> None:
    assert Person("7", "7 admin #").bindable == "7"
    assert Person("7; reboot").bindable == "'7; reboot'"
    assert Person("7", "Ada", "ada@x.org").bindable == "ada@x.org"


def test_a_good_token_is_accepted() -> None:
    check_id_token(GOOD, CLIENT, "n", NOW)
    check_id_token({**GOOD, "aud": ["detent", "shop"], "azp": "detent"}, CLIENT, "n", NOW)
    check_id_token({**GOOD, "exp": NOW - 30}, CLIENT, "n", NOW)  # clocks differ a little


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"iss": "https://login.example.com/"}, "another issuer"),
        ({"aud": "shop"}, "for another client"),
        ({"aud": None}, "for another client"),
        ({"aud": ["detent", "shop"]}, "issued to another client"),
        ({"aud": ["detent", "shop"], "azp": "shop"}, "issued to another client"),
        ({"exp": NOW - 61}, "has expired"),
        ({"exp": "never"}, "does not say when"),
        ({"iat": NOW + 61}, "from the future"),
        ({"nonce": "m"}, "another login"),
        ({"nonce": None}, "another login"),
        ({"sub": ""}, "names nobody"),
        ({"sub": ["ada"]}, "names nobody"),
    ],
)
def test_a_token_for_another_client_login_or_time_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ClaimFault, match=why):
        check_id_token({**GOOD, **change}, CLIENT, "n", NOW)


@pytest.mark.parametrize(
    ("claims", "person"),
    [
        ({"sub": "7", "name": "Ada"}, Person("7", "Ada")),
        ({"sub": "7", "email": "a@x.org", "email_verified": True}, Person("7", None, "a@x.org")),
        ({"sub": "7", "email": "a@x.org", "email_verified": "true"}, Person("7")),
        ({"sub": "7", "email": "a@x.org"}, Person("7")),
        ({"sub": "7", "groups": ["ops", 7, "", "ops", "x" * 301, "dev"]}, Person("7", groups=("ops", "dev"))),
        ({"sub": "7", "groups": "ops"}, Person("7", groups=("ops",))),
        ({"sub": "7", "groups": {"ops": True}}, Person("7")),
    ],
)
def test_a_person_is_what_the_claims_say_and_nothing_unverified(claims: dict[str, Any], person: Person) -> None:
    assert person_of(claims, "groups") == person


def test_the_challenge_is_the_one_of_the_standard() -> None:
    """RFC 7636, appendix B."""
    challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    assert challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == challenge


def test_the_address_of_a_login_has_no_secret() -> None:
    attempt = LoginAttempt("the-state", "the-nonce", "the-verifier", "/jobs")
    address = authorization_url("https://login.example.com/auth?x=1", CLIENT, attempt)
    assert address.startswith("https://login.example.com/auth?x=1&response_type=code&client_id=detent&")
    assert "state=the-state" in address
    assert "nonce=the-nonce" in address
    assert "the-verifier" not in address
