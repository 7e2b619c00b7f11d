"""Where a template is rendered: in a URL, a header, JSON, a form, markup or plain text. No I/O.

Each place has its own escape, so that no value can leave the place of its placeholder: a value in a URL adds no
segment and no parameter, one in a header no line, one in JSON no member.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import msgspec
from yarl import URL

from detent.domain.documents import encode_json
from detent.domain.refusal import shown
from detent.domain.run import Call
from detent.domain.target_url import parse_url
from detent.domain.template import Pieces, Placeholder, TemplateError, is_template, parse
from detent.domain.template_facts import FactError, fact

Escape = Callable[[Placeholder, Any], str]

LONGEST_URL = 8192
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")
_QUOTE_OR_BACKSLASH = re.compile(r'["\\]')


class ValueSlot(NamedTuple):
    """A placeholder and how its value is written there."""

    placeholder: Placeholder
    escape: Escape


Compiled = tuple[str | ValueSlot, ...]


class UrlTemplate(NamedTuple):
    """`pieces` begin with scheme and host, which no value can change. `empty`: how many segments of the path are."""

    pieces: Compiled
    origin: URL
    empty: int


def render(pieces: Compiled, call: Call, limit: int) -> str:
    """At most `limit` characters: a payload that is named many times could fill the memory of the worker."""
    texts: list[str] = []
    size = 0
    for piece in pieces:
        text = piece if isinstance(piece, str) else piece.escape(piece.placeholder, fact(piece.placeholder, call))
        size += len(text)
        if size > limit:
            raise FactError(f"the rendered text is longer than {limit} characters")
        texts.append(text)
    return "".join(texts)


def compiled(pieces: Pieces, escape: Escape) -> Compiled:
    return tuple(ValueSlot(piece, escape) if isinstance(piece, Placeholder) else piece for piece in pieces)


def placeholders(pieces: Compiled) -> tuple[Placeholder, ...]:
    return tuple(piece.placeholder for piece in pieces if isinstance(piece, ValueSlot))


# --- escapes ---


def plain_text(placeholder: Placeholder, value: Any) -> str:
    match value:
        case str():
            return value
        case bool() | int() | float():
            return encode_json(value)
        case _:
            raise FactError(f"{placeholder} is {shown(value)}, and only text, numbers, true and false can be put here")


def json_value(_: Placeholder, value: Any) -> str:
    return encode_json(value)


def json_text(placeholder: Placeholder, value: Any) -> str:
    """Inside the quotes of a string."""
    return encode_json(plain_text(placeholder, value))[1:-1]


def _url_text(placeholder: Placeholder, value: Any) -> str:
    return quote(plain_text(placeholder, value), safe="")


def _header_text(placeholder: Placeholder, value: Any) -> str:
    text = plain_text(placeholder, value)
    if _CONTROL.search(text):
        raise FactError(f"{placeholder} has a line break or another control character, which a header cannot have")
    return text


def _form_text(placeholder: Placeholder, value: Any) -> str:
    return quote_plus(plain_text(placeholder, value), safe="")


def _markup_text(placeholder: Placeholder, value: Any) -> str:
    return html.escape(plain_text(placeholder, value))


# --- URLs and headers ---


def header_template(text: str) -> Compiled:
    return compiled(parse(text), _header_text)


def url_template(text: str) -> UrlTemplate:
    """TargetError or TemplateError unless scheme, host and port are written out before the first placeholder."""
    pieces = parse(text)
    _check_places(pieces)
    mark = "x"
    while mark in text:
        mark += "x"
    slots = [piece for piece in pieces if isinstance(piece, Placeholder)]
    numbered = iter(range(len(slots)))
    # Parsed with words in place of the values, so that the text around them is percent-encoded as in any other URL.
    parsed = parse_url("".join(p if isinstance(p, str) else f"{mark}{next(numbered)}y" for p in pieces))
    parts = re.split(f"{mark}([0-9]+)y", str(parsed))
    if [int(number) for number in parts[1::2]] != list(range(len(slots))):
        raise TemplateError("The URL has .. behind a placeholder: write the path without it.")
    found: list[str | ValueSlot] = []
    for index, part in enumerate(parts):
        found += [ValueSlot(slots[int(part)], _url_text)] if index % 2 else [part] if part else []
    return UrlTemplate(tuple(found), parsed.origin(), _empty_segments(parsed.raw_path))


def _check_places(pieces: Pieces) -> None:
    last = max((index for index, piece in enumerate(pieces) if isinstance(piece, Placeholder)), default=None)
    if last is None:
        return
    first = pieces[0] if isinstance(pieces[0], str) else ""
    if not re.match(r"[^/?#]*//[^/?#]+[/?]", first):
        raise TemplateError(
            "A placeholder stands in the scheme, the host or the port of the URL, which must be written out: begin "
            "with for example https://example.com/ and use placeholders behind it."
        )
    if any("#" in piece for piece in pieces[:last] if isinstance(piece, str)):
        raise TemplateError("A placeholder stands behind # in the URL, a part that is never sent: remove it.")


def render_url(template: UrlTemplate, call: Call) -> URL:
    url = URL(render(template.pieces, call, LONGEST_URL), encoded=True)
    segments = url.raw_path.split("/")
    if "." in segments or ".." in segments or _empty_segments(url.raw_path) != template.empty:
        raise FactError("a segment of the path would be empty, '.' or '..', which is another place than the URL names")
    if url.origin() != template.origin:  # cannot happen: values have no characters that end a path
        raise FactError("the rendered URL has another host")
    return url


def _empty_segments(path: str) -> int:
    return path.split("/").count("")


# --- bodies ---


def body_template(body: str | dict[str, Any] | list[Any], content_type: str) -> Compiled:
    """TemplateError if a text that is sent as JSON is none."""
    if not isinstance(body, str):
        return _merged(_document(body))
    kind = content_type.partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")):
        return _json_body(body)
    if kind == "application/x-www-form-urlencoded":
        return compiled(parse(body), _form_text)
    return compiled(parse(body), _markup_text if kind.endswith(("xml", "html")) else plain_text)


def _json_body(text: str) -> Compiled:
    """A placeholder inside the quotes of a string is a part of its text, any other one a value."""
    found: list[str | ValueSlot] = []
    inside = False
    for piece in parse(text):
        if isinstance(piece, Placeholder):
            found.append(ValueSlot(piece, json_text if inside else json_value))
        else:
            found.append(piece)
            inside = _ends_inside(piece, inside)
    # No placeholder can be a part of an escape, a number or a name: with these samples, that is no JSON.
    sample = "".join(p if isinstance(p, str) else "x" if p.escape is json_text else "null" for p in found)
    try:
        msgspec.json.decode(sample)
    except RecursionError:
        raise TemplateError("The body is nested too deeply: make it flatter.") from None
    except msgspec.DecodeError as error:
        raise TemplateError(
            f"The body is not JSON ({error}): correct it, or give a header Content-Type that is not JSON, such as "
            "text/plain."
        ) from None
    return tuple(found)


def _ends_inside(text: str, inside: bool) -> bool:
    """Whether the end of this text is inside a string of JSON, if its beginning is `inside` one."""
    place = 0
    while found := _QUOTE_OR_BACKSLASH.search(text, place):
        place = found.end()
        if found[0] == '"':
            inside = not inside
        elif inside:
            place += 1
    return inside


def _document(value: Any) -> list[str | ValueSlot]:
    """A document as pieces of its JSON. Its depth is bounded by the check of documents."""
    if isinstance(value, dict):
        members = [[*_key(key), ":", *_inside(key, one)] for key, one in value.items()]
        return ["{", *_joined(members), "}"]
    if isinstance(value, list):
        return ["[", *_joined([_inside(index, one) for index, one in enumerate(value)]), "]"]
    if not isinstance(value, str) or not is_template(value):
        return [encode_json(value)]
    pieces = parse(value)
    if len(pieces) == 1 and isinstance(pieces[0], Placeholder):  # a value of its own: a number stays a number
        return [ValueSlot(pieces[0], json_value)]
    return ['"', *(encode_json(p)[1:-1] if isinstance(p, str) else ValueSlot(p, json_text) for p in pieces), '"']


def _inside(step: str | int, value: Any) -> list[str | ValueSlot]:
    try:
        return _document(value)
    except TemplateError as error:
        error.path = (step, *error.path)
        raise


def _key(key: str) -> list[str]:
    if is_template(key):
        raise TemplateError(f"The key {shown(key)} of the body has {{{{, but keys are no templates: write it out.")
    return [encode_json(key)]


def _joined(parts: list[list[str | ValueSlot]]) -> list[str | ValueSlot]:
    joined: list[str | ValueSlot] = []
    for part in parts:
        joined += [",", *part] if joined else part
    return joined


def _merged(pieces: list[str | ValueSlot]) -> Compiled:
    merged: list[str | ValueSlot] = []
    for is_text, some in groupby(pieces, lambda piece: isinstance(piece, str)):
        run = list(some)
        merged += ["".join(map(str, run))] if is_text else run
    return tuple(merged)
