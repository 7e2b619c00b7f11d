"""From a request to typed values: body, query, path. Errors name the wrong part and the correction."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from detent.api.foreign_bodies import with_translation
from detent.api.problems import Refusal
from detent.domain.documents import MAX_DEPTH, check_text, plain, utc_instants
from detent.domain.job import JobSpec
from detent.domain.refusal import nearest, refused
from detent.errors import NotFound, UsageError

MAX_QUERY_FIELDS = 50
FLAGS = {"": True, "true": True, "1": True, "false": False, "0": False}

Value = TypeVar("Value")


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; refused as soon as it is known to be too large. How long it may take, and how many bytes of all
    requests are held, the server limits (`node/protocol.py`)."""
    too_large = Refusal(
        413,
        "body-too-large",
        f"The body is larger than {limit} bytes: store large data elsewhere and send a reference to it.",
        {"Connection": "close"},
    )
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > limit:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise too_large
    except ClientDisconnect:
        raise Refusal(400, "malformed-request", "The connection was closed before the body was sent.") from None
    return bytes(body)


class Upload:
    """A body that is not one JSON document."""

    media_types: ClassVar[tuple[str, ...]]
    max_bytes: ClassVar[int]
    described: ClassVar[Any]
    """The type of its JSON form, or a tuple of types, for the OpenAPI document."""

    def __init__(self, raw: bytes, media_type: str) -> None:
        self.raw = raw
        self.media_type = media_type


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").lower().partition(";")[0].strip()


def check_content_type(request: Request, allowed: Sequence[str]) -> None:
    """The content type must be JSON: a form that a web page posts cannot declare that."""
    given = request.headers.get("content-type", "")
    charset = given.lower().partition("charset=")[2].strip(' "') or "utf-8"
    if media_type(request) not in allowed or charset not in ("utf-8", "utf8"):
        raise Refusal(
            415,
            "unsupported-media-type",
            f"The content type is {given or 'missing'}: send JSON with the header Content-Type: "
            f"{' or '.join(allowed)}.",
        )


def decode_headers(headers: Headers, expected: type[Value]) -> Value:
    """The headers that the struct names, each as one text."""
    given = {
        field.name: ", ".join(headers.getlist(field.name.replace("_", "-")))
        for field in msgspec.structs.fields(typing.cast("type[msgspec.Struct]", expected))
        if field.name.replace("_", "-") in headers
    }
    return msgspec.convert(given, expected)


def decode_body(raw: bytes, expected: type[Value]) -> Value:
    if not raw.strip():
        raise Refusal(400, "malformed-json", "The body is empty: send a JSON object.")
    try:
        value = msgspec.json.decode(raw, type=expected)
    except msgspec.ValidationError as error:
        document = decode_plain(raw)
        fault = refused(error, document, expected)
        raise (with_translation(fault, document, len(raw)) if expected is JobSpec else fault) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(error) from error
    except RecursionError:
        raise too_deep() from None
    if b"\\u0000" in raw:
        check_text(plain(value))
    return utc_instants(value)


def decode_plain(raw: bytes) -> Any:
    """The values of the document. A document may be refused for a wrong type before all of it was read, so it may still
    turn out to be invalid JSON."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError:
        return None  # JSON, but with a number out of range
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(error) from error
    except RecursionError:
        raise too_deep() from None


def not_json(error: Exception) -> Refusal:
    return Refusal(400, "malformed-json", f"The body is not JSON ({error}): check its syntax.")


def too_deep() -> UsageError:
    return UsageError(f"The document is nested deeper than {MAX_DEPTH} levels: make it flatter.")


def decode_query(raw: bytes, expected: type[Value]) -> Value:
    """Query parameters as a struct. An empty value counts as not given; only list fields may be given twice."""
    fields = {field.encode_name: field for field in _fields(expected)}
    values: dict[str, Any] = {}
    for name, text in _pairs(raw):
        if name not in fields:
            near = nearest(name, fields)
            advice = f"did you mean {near}?" if near else f"known are {', '.join(fields) or 'none'}."
            raise UsageError(f"There is no query parameter {name!r}: {advice}", f"/{name}")
        if "\0" in text:
            raise UsageError(f"The query parameter {name} has a NUL character: remove it.", f"/{name}")
        if isinstance(fields[name].type, msgspec.inspect.ListType):
            values.setdefault(name, []).append(text)
        elif name in values:
            raise UsageError(f"The query parameter {name} is given twice: keep one of them.", f"/{name}")
        elif text or isinstance(fields[name].type, msgspec.inspect.BoolType):
            values[name] = _typed(text, fields[name].type)
    try:
        return utc_instants(msgspec.convert(values, expected))
    except msgspec.ValidationError as error:
        raise refused(error, values, expected) from error


def _fields(expected: Any) -> tuple[msgspec.inspect.Field, ...]:
    kind = msgspec.inspect.type_info(expected)
    return kind.fields if isinstance(kind, msgspec.inspect.StructType) else ()


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS)
    except ValueError as error:
        raise UsageError(f"The query cannot be read ({error}): percent-encode it as UTF-8.") from error


def _typed(text: str, kind: msgspec.inspect.Type) -> object:
    if isinstance(kind, msgspec.inspect.IntType) and text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    if isinstance(kind, msgspec.inspect.BoolType):
        return FLAGS.get(text, text)
    return text


def decode_segment(encoded: str) -> str:
    """A decoded part of the path; %2F stands for a slash."""
    try:
        text = unquote(encoded, errors="strict")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise NotFound("The path has characters that no name has: check how it is encoded.")
    return text
