"""From a decoder's error to a JSON pointer and a sentence: what was read, and what to write instead.

The decoder stops at the first fault and names its place, `$.target.url`; the type of that place says what is accepted.
The sentence is made from both, so few fields need their own text.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import inspect

from detent.domain.secret_ref import SecretRef, is_reference_name
from detent.errors import UsageError

LONGEST_SHOWN = 60
# To compare names takes time with their length, which a stranger chooses: one of megabytes took a node seconds.
LONGEST_COMPARED = 100

_PLACE = re.compile(r" - at (?:`key` in )?`(\$[^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")


def pointer_to(*parts: str | int) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def nearest(name: str, known: Iterable[str]) -> str | None:
    if len(name) > LONGEST_COMPARED:
        return None
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def refused(error: msgspec.ValidationError, document: object, expected: Any) -> UsageError:
    """The error for people; `document` is what was read, as plain values, `expected` what it should be. No value
    of a document whose type is `confidential` is shown."""
    place = _PLACE.search(str(error))
    fault = str(error)[: place.start()] if place else str(error)
    path, value, kind = _walk(place[1] if place else "$", document, _type_info(expected))
    if unknown := _UNKNOWN.fullmatch(fault):
        return _unknown_field(unknown[1], path, value, kind)
    if missing := _MISSING.fullmatch(fault):
        return _missing_field(missing[1], path, value, kind)
    read = "is a number out of range" if "out of range" in fault else f"is {shown(value)}"
    if getattr(expected, "confidential", False):
        read = "cannot be used"
    return UsageError(f"{_name(path)} {read}: give {_advice(path, kind)}.", pointer_to(*path))


@functools.lru_cache(maxsize=256)
def _type_info(expected: Any) -> inspect.Type:
    """Kept, because it takes a millisecond, and each job of a batch may be wrong."""
    return inspect.type_info(expected)


def shown(value: object) -> str:
    """A value of the document, as JSON, shortened."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def _walk(place: str, document: object, kind: inspect.Type) -> tuple[list[str | int], object, inspect.Type]:
    path: list[str | int] = []
    value: Any = document
    for name, index in _STEP.findall(place):
        kind = _choose(kind, value)
        step: str | int = name
        if index == "...":
            step = _odd_entry(value)
        elif index:
            step = int(index)
        path.append(step)
        kind = _inside(kind, step)
        try:
            value = value[step]
        except (LookupError, TypeError):
            value = None
    return path, value, kind


def _odd_entry(value: object) -> str:
    """The entry of a mapping that was refused. The decoder does not name it, but our mappings hold only text and
    references to secrets."""
    if isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(entry, str) and not _is_reference(entry):
                return str(key)
    return ""


def _is_reference(entry: object) -> bool:
    return isinstance(entry, dict) and entry.keys() == {"secret"} and is_reference_name(str(entry["secret"]))


def _choose(kind: inspect.Type, value: object) -> inspect.Type:
    """The member of a union that the value was meant to be."""
    if not isinstance(kind, inspect.UnionType):
        return kind
    structs = [member for member in kind.types if isinstance(member, inspect.StructType)]
    if isinstance(value, dict):
        for member in structs:
            if member.tag_field and value.get(member.tag_field) == member.tag:
                return member
        others = [member for member in kind.types if isinstance(member, inspect.DictType)]
        return next(iter([*others, *(member for member in structs if not member.tag_field)]), kind)
    if isinstance(value, list):
        return next((member for member in kind.types if isinstance(member, inspect.ListType)), kind)
    return kind


def _inside(kind: inspect.Type, step: str | int) -> inspect.Type:
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            if field.encode_name == step:
                return field.type
    if isinstance(kind, inspect.DictType):
        return kind.value_type
    if isinstance(kind, inspect.ListType):
        return kind.item_type
    if isinstance(kind, inspect.UnionType):  # only the tag can have been refused before a member was chosen
        tags = [member.tag for member in kind.types if isinstance(member, inspect.StructType)]
        return inspect.LiteralType(tuple(tag for tag in tags if tag is not None))
    return inspect.AnyType()


def _unknown_field(name: str, path: list[str | int], value: object, kind: inspect.Type) -> UsageError:
    kind = _choose(kind, value)
    known = [field.encode_name for field in kind.fields] if isinstance(kind, inspect.StructType) else []
    near = nearest(name, known)
    advice = f"did you mean {near}?" if near else f"known are {', '.join(known)}."
    return UsageError(f"{_name(path)} has no field {shown(name)}: {advice}", pointer_to(*path, name))


def _missing_field(name: str, path: list[str | int], value: object, kind: inspect.Type) -> UsageError:
    path = [*path, name]
    words = _advice(path, _inside(_choose(kind, value), name))
    return UsageError(f"{_name(path)} is missing: give {words}.", pointer_to(*path))


def _name(path: list[str | int]) -> str:
    return ".".join(map(str, path)) or "The document"


def _advice(path: list[str | int], kind: inspect.Type) -> str:
    words = _EXAMPLES.get(path[-1]) if path else None
    return words or _wanted(kind)


def _wanted(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType(types=types):
            words = [_wanted(member) for member in types if not isinstance(member, inspect.NoneType)]
            return " or ".join(dict.fromkeys(words))
        case inspect.LiteralType(values=values):
            return " or ".join(shown(value) for value in values)
        case inspect.StrType(min_length=low, max_length=high):
            return f"text{_range(low, high, ' of ', ' characters')}"
        case inspect.IntType():
            return f"a whole number{_limits(kind)}"
        case inspect.FloatType():
            return f"a number{_limits(kind)}"
        case inspect.ListType(item_type=item, min_length=low, max_length=high):
            return f"a list{_range(low, high, ' of ', ' items')}, each {_wanted(item)}"
        case inspect.StructType(cls=cls) if cls is SecretRef:
            return 'a secret, such as {"secret": "payments-key"}'
        case inspect.StructType(tag=tag):
            return f"an object of the type {shown(tag)}" if tag else "an object"
        case inspect.DictType():
            return "an object"
        case _:
            return _PLAIN.get(type(kind), "another value")


_EXAMPLES: dict[str | int, str] = {
    "schedule": 'one such as "0 9 * * MON", "every 15m" or {"at": "2026-12-24T18:00:00Z"}',
    "target": 'one such as {"type": "http", "url": "https://example.org/hook"}',
    "timezone": 'one such as "Europe/Berlin"',
    "url": 'one such as "https://example.org/hook"',
    "function": 'one such as "package.module:name"',
    "secret": 'the name of a secret, such as "payments-key", "env:PAYMENTS_KEY" or "file:payments-key"',
}

_PLAIN: dict[type, str] = {
    inspect.BoolType: "true or false",
    inspect.DateTimeType: "a time such as 2026-12-24T18:00:00Z",
    inspect.UUIDType: "an id such as 01980a3e-7c3f-7000-8000-00000000002a",
    inspect.AnyType: "numbers below 1e308",
}


def _limits(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.gt is not None:
        return f" above {kind.gt}" + (f" and up to {kind.le}" if kind.le is not None else "")
    return _range(kind.ge, kind.le, " ", "")


def _range(low: float | None, high: float | None, before: str, after: str) -> str:
    if low is not None and high is not None:
        return f"{before}{'from ' if not after else ''}{low} to {high}{after}"
    if high is not None:
        return f"{before}at most {high}{after}"
    return f"{before}at least {low}{after}" if low is not None else ""
