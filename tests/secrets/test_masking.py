"""Values of secrets in what targets send back."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.domain.masking import Mask
from detent.domain.secret_ref import SHORTEST_VALUE, read_header, value_fault
from detent.domain.sensitive import MASKED, is_sensitive
from detent.worker.execute import masked_result

VALUE = 'sk_live/4eC39+"Hq\\LyjWDä'


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        repr(VALUE)[1:-1],
        quote(VALUE),
        quote(VALUE, safe=""),
        re.sub("%..", lambda found: found[0].lower(), quote(VALUE, safe="")),
        quote_plus(VALUE),
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
        VALUE.replace("&", "&amp;").replace('"', "&quot;"),
    ],
)
def test_a_value_is_masked_however_it_is_written(form: str) -> None:
    assert Mask([VALUE]).text(f"before {form} after") == f"before {MASKED} after"


@pytest.mark.parametrize("user", ["", "a", "ab", "abc"])
def test_a_password_is_masked_inside_a_basic_credential(user: str) -> None:
    """The value is a part of what was encoded, at any offset. The characters at its edges, which hold parts of the
    neighbours as well, stay: at most one character of the password at either end can be told from them."""
    password = "correct-horse-battery"
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    before, mask, after = Mask([password]).text(encoded).partition(MASKED)
    assert mask
    assert len(base64.b64decode(before + "A" * (-len(before) % 4))) <= len(user) + 3
    assert len(after) <= 3


def test_the_token_of_a_header_is_masked_without_its_scheme() -> None:
    assert Mask(["Bearer s3cr3t-t0ken"]).text("token s3cr3t-t0ken is expired") == f"token {MASKED} is expired"


def test_each_line_of_a_private_key_is_masked() -> None:
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw"
    key = f"-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----\n"
    assert line not in Mask([key]).text(f"cannot parse {line!r}")


def test_the_lines_of_a_certificate_are_public_and_those_of_its_key_are_not() -> None:
    public, private = "MIIBszCCAVmgAwIBAgIUVgxqBd2m", "MIGHAgEAMBMGByqGSM49AgEGCCqG"
    certificate = f"-----BEGIN CERTIFICATE-----\n{public}\n-----END CERTIFICATE-----\n"
    key = f"-----BEGIN PRIVATE KEY-----\n{private}\n-----END PRIVATE KEY-----\n"
    for value in (certificate + key, key + certificate):
        assert Mask([value]).text(f"{public} {private}") == f"{public} {MASKED}"


def test_text_that_was_cut_inside_a_value_loses_the_part() -> None:
    mask = Mask(["0123456789abcdef"])
    assert mask.cut_text("the key is 0123456789") == f"the key is {MASKED}"
    assert mask.cut_text("89abcdef was the key") == f"{MASKED} was the key"
    assert mask.text("the key is 0123456789") == "the key is 0123456789"


def test_a_truncated_document_is_treated_as_cut() -> None:
    mask = Mask(["0123456789abcdef"])
    cut = {"status": 200, "body": "key: 0123456789", "truncated": True}
    assert mask.document(cut) == {"status": 200, "body": f"key: {MASKED}", "truncated": True}
    assert mask.document({"0123456789abcdef": [1, None, "x0123456789abcdef"]}) == {MASKED: [1, None, f"x{MASKED}"]}


@pytest.mark.parametrize(("value", "number"), [("12345678", 12345678), ("123456", -123456), ("3.14159", 3.14159)])
def test_a_value_of_digits_is_masked_where_it_comes_back_as_a_number(value: str, number: float) -> None:
    assert value not in json.dumps(Mask([value]).document({"pin": [number, 7, 1.5, True]}))
    assert Mask([value]).document([7, 1.5, True, None]) == [7, 1.5, True, None]


def test_a_result_that_is_nested_too_deeply_to_be_searched_is_left_out() -> None:
    """The handler has succeeded: that must not become a failure."""
    result = masked_result("[" * 900 + '"the s3cr3t-t0ken"' + "]" * 900, Mask(["s3cr3t-t0ken"]))
    assert result is not None and "s3cr3t-t0ken" not in result
    assert isinstance(json.loads(result), str)


@given(st.text(min_size=SHORTEST_VALUE, max_size=60), st.text(max_size=20), st.text(max_size=20))
def test_no_value_survives_in_any_text(value: str, before: str, after: str) -> None:
    if value_fault(value) is not None:
        return
    shown = Mask([value]).text(before + value + after)
    assert value not in shown or value in MASKED * 2 + before + MASKED + after


def test_a_mask_shows_no_value_when_it_is_printed() -> None:
    assert "s3cr3t" not in repr(Mask(["s3cr3t-t0ken"]))


@pytest.mark.parametrize(
    "name", ["Authorization", "cookie", "Proxy-Authorization", "X-Api-Key", "x-auth-token", "A-SECRET"]
)
def test_headers_of_credentials_are_recognised(name: str) -> None:
    assert is_sensitive(name)


@pytest.mark.parametrize("name", ["Accept", "Keyboard", "X-Token-Kind", "Content-Type"])
def test_other_headers_are_not(name: str) -> None:
    assert not is_sensitive(name)


def test_a_header_on_a_command_line_may_be_a_reference() -> None:
    assert str(read_header('{"secret": "payments"}')) == '{"secret": "payments"}'
    assert read_header("{not json") == "{not json"


def test_a_certificate_without_an_end_hides_no_line_of_the_private_key_behind_it() -> None:
    line = "MHcCAQEEIBkQ3mK1oGm2"
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    key = f"-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----"
    assert Mask([f"{begin}\nMIIB\n{key}\n{begin}\nMIIC\n{end}\n"]).text(f"got {line}") == f"got {MASKED}"
