"""Limits of every document: text that can be stored; numbers, sizes and depth in bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

import msgspec

from detent.domain.refusal import pointer_to
from detent.errors import UsageError

MAX_PAYLOAD_BYTES = 1_048_576
MAX_REST_BYTES = 131_072
MAX_DEPTH = 64
MAX_NUMBER_BITS = 4096
SHORTEST_TOO_LONG = 1_233  # digits: fewer cannot make a number of more bits

Value = TypeVar("Value")

_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % SHORTEST_TOO_LONG)

Path = tuple[str | int, ...]

# Arithmetic with years outside these bounds would leave the range of datetime.
FIRST_YEAR = 1970
LAST_YEAR = 9000


def utc_instant(moment: datetime, name: str, pointer: str = "") -> datetime:
    """The instant in UTC, in a year that arithmetic can handle. Every instant from a user passes through here."""
    try:
        found = moment.astimezone(UTC)
        if FIRST_YEAR <= found.year <= LAST_YEAR:
            return found
    except OverflowError:
        pass
    raise UsageError(
        f"{name} is {moment.isoformat()}: give an instant of the years {FIRST_YEAR} to {LAST_YEAR}.", pointer
    )


def utc_instants(value: Value) -> Value:
    """The document with its instants in UTC; instants without a zone stay as they are, for later checks."""
    changed = {}
    kind: type = type(value)
    for name, written in _instants_of(kind):
        moment = getattr(value, name)
        if isinstance(moment, datetime) and moment.tzinfo is not None:
            changed[name] = utc_instant(moment, written, pointer_to(written))
    return msgspec.structs.replace(value, **changed) if changed else value  # type: ignore[type-var]  # it has fields


@cache
def _instants_of(kind: type) -> tuple[tuple[str, str], ...]:
    """The fields of a struct that may hold an instant, with their names as they are written."""
    info = msgspec.inspect.type_info(kind)
    if not isinstance(info, msgspec.inspect.StructType):
        return ()
    return tuple((field.name, field.encode_name) for field in info.fields if _is_instant(field.type))


def _is_instant(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_is_instant(each) for each in kind.types)
    return isinstance(kind, msgspec.inspect.DateTimeType)


def plain(value: Any) -> Any:
    """The value as it will look in JSON: mappings, lists, text, numbers, true, false and null."""
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except RecursionError:
        raise _too_deep("") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"The document holds a value that JSON does not have ({error}): use plain values.") from error


def looks_sound(encoded: bytes) -> bool:
    """Whether encoded JSON certainly holds nothing that check_text refuses. It checks the bytes only: False is possible
    for a good document, True is not for a bad one."""
    return (
        b"\\u0000" not in encoded
        and encoded.count(b"[") + encoded.count(b"{") <= MAX_DEPTH
        and (len(encoded) < SHORTEST_TOO_LONG or _LONG_NUMBER.search(encoded) is None)
    )


def check_text(document: dict[str, Any]) -> None:
    """Refuse what PostgreSQL or a target cannot hold, wherever it is: in a value, in a key, however deep."""
    heap: list[tuple[dict[str, Any] | list[Any], Path]] = [(document, ())]
    while heap:
        container, path = heap.pop()
        if len(path) > MAX_DEPTH:
            raise _too_deep(pointer_to(*path[:1]))
        entries: Iterable[tuple[str | int, Any]] = enumerate(container)
        if isinstance(container, dict):
            for key in container:
                if fault := _text_fault(key):
                    raise UsageError(f"The name of an entry {fault}", pointer_to(*path))
            entries = container.items()
        for step, value in entries:
            if isinstance(value, dict | list | tuple):
                heap.append((value if isinstance(value, dict) else list(value), (*path, step)))
            elif fault := _fault(value):
                raise UsageError(fault, pointer_to(*path, step))


def check_size(document: dict[str, Any], max_payload_bytes: int) -> None:
    payload = len(msgspec.json.encode(document.get("payload")))
    if payload > max_payload_bytes:
        raise UsageError(
            f"The payload is {payload} bytes of JSON and {max_payload_bytes} are allowed: "
            "store the data elsewhere and send a reference to it.",
            "/payload",
        )
    rest = len(msgspec.json.encode({key: value for key, value in document.items() if key != "payload"}))
    if rest > MAX_REST_BYTES:
        raise UsageError(
            f"The job is {rest} bytes of JSON without its payload and {MAX_REST_BYTES} are allowed: make it shorter."
        )


def _fault(value: object) -> str | None:
    if isinstance(value, str):
        fault = _text_fault(value)
        return f"The text {fault}" if fault else None
    if isinstance(value, float) and not math.isfinite(value):
        return f"The number is {value}, which JSON does not have: leave it out, or send null."
    if isinstance(value, int) and value.bit_length() > MAX_NUMBER_BITS:
        return "The whole number has more than a thousand digits: send it as text."
    return None


def _text_fault(text: str) -> str | None:
    if "\0" in text:
        return "has a NUL character (\\u0000), which cannot be stored: remove it."
    try:
        text.encode()
    except UnicodeEncodeError:
        return "has half of a surrogate pair, which is not a character: remove it, or send the other half."
    return None


def _too_deep(pointer: str) -> UsageError:
    return UsageError(f"The document is nested deeper than {MAX_DEPTH} levels: make it flatter.", pointer)


def encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
