"""The search for leaks is tried itself: it finds a value in every form, and nothing where there is none."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest

from tests.support.leaks import found_in

VALUE = 'planted/4eC39Hq+"quoted" <ü>'
FORMS = {
    "plain": VALUE,
    "JSON": json.dumps({"a": VALUE}),
    "JSON in Unicode": json.dumps({"a": VALUE}, ensure_ascii=False),
    "repr": repr([VALUE]),
    "HTML": html.escape(VALUE),
    "a path": quote(VALUE),
    "a part of a path": quote(VALUE, safe=""),
    "a query": quote_plus(VALUE),
    "hex of a dump": f"\\\\x{json.dumps(VALUE).encode().hex()}",
    **{f"base64 behind {text}": base64.b64encode(f"{text}{VALUE}:x".encode()).decode() for text in ("", "u:", "user:")},
    "base64 for URLs": base64.urlsafe_b64encode(VALUE.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_value_is_found(form: str) -> None:
    assert found_in(f"before {FORMS[form]} after", "another value", VALUE) == [VALUE]


def test_a_text_without_the_value_has_none() -> None:
    assert found_in("before ******** after planted/4eC39Hq", VALUE) == []
