"""The body of an HTTP target as people write it in one text, on the command line and in the form. No I/O."""

from __future__ import annotations

from typing import Any

import msgspec

from detent.domain.documents import encode_json


def read_body(text: str) -> str | dict[str, Any] | list[Any]:
    """A JSON object or list is a document, a JSON string the text in it, and anything else a text as it is: also one
    that becomes JSON when it is rendered."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    return found if isinstance(found, str | dict | list) else text


def body_text(body: str | dict[str, Any] | list[Any]) -> str:
    """The text that `read_body` reads as this body."""
    if isinstance(body, str):
        return body if read_body(body) == body else encode_json(body)
    return msgspec.json.format(msgspec.json.encode(body)).decode()
