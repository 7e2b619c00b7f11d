"""The keywords of JSON Schema that are about one value: what they may say, and whether the value is so. No I/O."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.domain.refusal import shown

if TYPE_CHECKING:
    from detent.domain.payload_check import PayloadCheck

Path = tuple[str | int, ...]
Sentence = Callable[[], str]
"""What is wrong, in words that continue a sentence. They are made only for a fault that is shown: in a branch of anyOf,
a value of a megabyte would be written out for nothing."""
MOST_NAMED = 10
"""Of the missing members."""
CHARACTERS_A_STEP = 100
FRACTION_STEPS = 10

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
WITH_ARTICLE = {
    "null": "null", "boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "text",
    "array": "a list", "object": "an object",
}  # fmt: skip
# What each keyword holds; `annotation` says nothing about the payload.
KEYWORDS: dict[str, str] = {
    **dict.fromkeys(("$schema", "$id", "$comment", "title", "description", "format", "contentEncoding",
                     "contentMediaType"), "text"),
    **dict.fromkeys(("default", "examples", "deprecated", "readOnly", "writeOnly", "const"), "annotation"),
    **dict.fromkeys(("not", "if", "then", "else", "additionalProperties", "propertyNames", "items", "contains",
                     "contentSchema"), "schema"),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), "schemas"),
    **dict.fromkeys(("$defs", "definitions", "properties", "dependentSchemas"), "schemas by name"),
    "patternProperties": "schemas by pattern",
    "$ref": "reference",
    "type": "types",
    "enum": "list",
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "number"),
    "multipleOf": "positive number",
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains",
                     "maxContains"), "count"),
    "pattern": "pattern",
    "uniqueItems": "switch",
    "required": "names",
    "dependentRequired": "names by name",
}  # fmt: skip
UNSUPPORTED = {
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), "use additionalProperties or items instead"),
    **dict.fromkeys(("$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$anchor"),
                    "refer to parts of the schema with $ref and #/$defs/NAME"),
    "$vocabulary": "leave it out",
    "additionalItems": "use prefixItems and items, as of 2020-12",
    "dependencies": "use dependentRequired or dependentSchemas, as of 2020-12",
}  # fmt: skip

_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class PayloadFault(NamedTuple):
    """Where a payload does not match, and how, in words that continue a sentence."""

    path: Path
    text: str


# --- what a schema may say ---


def text_of(kind: str, argument: Any) -> str | None:
    """What a keyword of this kind has to hold; None: the argument is that."""
    test, words = _ARGUMENTS.get(kind, (lambda _: True, ""))
    return None if test(argument) else words


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _are_types(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not 0 < len(names) <= len(TYPES):
        return False
    return all(name in TYPES for name in names) and len(set(names)) == len(names)


_ARGUMENTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (lambda value: isinstance(value, str), "text"),
    "types": (_are_types, f"one of {', '.join(TYPES)}, or a list of different ones"),
    "list": (lambda value: isinstance(value, list) and bool(value), "a list of values"),
    "number": (_is_number, "a number"),
    "positive number": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "count": (_is_count, "a whole number from 0"),
    "switch": (lambda value: isinstance(value, bool), "true or false"),
    "names": (_are_names, "a list of names"),
    "names by name": (
        lambda value: isinstance(value, dict) and all(map(_are_names, value.values())),
        "an object of lists of names",
    ),
}


# --- whether a value is so ---


def check_value(check: PayloadCheck, keyword: str, argument: Any, value: Any, path: Path) -> Iterator[PayloadFault]:
    """The faults of a value by one keyword; none for keywords that hold schemas."""
    fault_of = _CHECKS.get(keyword)
    if fault_of is not None and (sentence := fault_of(check, argument, value)) is not None:
        yield check.fault(path, sentence)


def key_of(value: Any, spend: Callable[[int], None]) -> object:
    """Equal for values that JSON Schema calls equal: 1 is 1.0, and neither is true."""
    spend(1)
    if isinstance(value, list):
        return "list", tuple(key_of(item, spend) for item in value)
    if isinstance(value, dict):
        return "object", frozenset((name, key_of(item, spend)) for name, item in value.items())
    return isinstance(value, bool), value


def _has_type(name: str, value: Any) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return _is_number(value) and (isinstance(value, int) or value.is_integer())
        case "number":
            return _is_number(value)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def _type(check: PayloadCheck, argument: Any, value: Any) -> Sentence | None:
    names = [argument] if isinstance(argument, str) else argument
    if any(_has_type(name, value) for name in names):
        return None
    return lambda: _wrong_type(names, value)


def _wrong_type(names: list[str], value: Any) -> str:
    wanted = " or ".join(WITH_ARTICLE[name] for name in names)
    return f"is {shown(value)}, and payload_schema asks for {wanted}: send {wanted}"


def _enum(check: PayloadCheck, argument: Any, value: Any) -> Sentence | None:
    wanted = key_of(value, check.spend)
    if any(key_of(each, check.spend) == wanted for each in argument):
        return None
    more = ", …" if len(argument) > MOST_NAMED else ""
    return lambda: f"is {shown(value)}: send one of {', '.join(map(shown, argument[:MOST_NAMED]))}{more}"


def _const(check: PayloadCheck, argument: Any, value: Any) -> Sentence | None:
    same = key_of(value, check.spend) == key_of(argument, check.spend)
    return None if same else lambda: f"is {shown(value)}: send {shown(argument)}"


def _bound(holds: Callable[[Any, Any], bool], words: str) -> Callable[[PayloadCheck, Any, Any], Sentence | None]:
    def fault_of(check: PayloadCheck, argument: Any, value: Any) -> Sentence | None:
        if not _is_number(value) or holds(value, argument):
            return None
        return lambda: f"is {shown(value)}: send {words} {shown(argument)}"

    return fault_of


def _multiple(check: PayloadCheck, argument: Any, value: Any) -> Sentence | None:
    if not _is_number(value):
        return None
    if isinstance(value, int) and isinstance(argument, int):
        holds = value % argument == 0
    else:  # By their decimal digits: 0.3 is a multiple of 0.1, which their binary values are not.
        check.spend(FRACTION_STEPS)
        holds = Fraction(repr(value)) % Fraction(repr(argument)) == 0
    return None if holds else lambda: f"is {shown(value)}: send a multiple of {shown(argument)}"


def _size(
    kind: type[str] | type[list[Any]] | type[dict[str, Any]], unit: str, holds: Callable[[int, Any], bool], words: str
) -> Callable[[PayloadCheck, Any, Any], Sentence | None]:
    def fault_of(check: PayloadCheck, argument: Any, value: Any) -> Sentence | None:
        if not isinstance(value, kind) or holds(len(value), argument):
            return None
        return lambda: f"has {len(value)} {unit}: send {words} {shown(argument)}"

    return fault_of


def _at_least(value: Any, bound: Any) -> bool:
    return bool(value >= bound)


def _at_most(value: Any, bound: Any) -> bool:
    return bool(value <= bound)


def _pattern(check: PayloadCheck, argument: Any, value: Any) -> Sentence | None:
    if not isinstance(value, str) or check.patterns[argument].found_in(value, check.spend):
        return None
    return lambda: f"is {shown(value)}: send text that matches {argument}"


def _unique(check: PayloadCheck, argument: Any, value: Any) -> Sentence | None:
    if not argument or not isinstance(value, list):
        return None
    seen: set[object] = set()
    for item in value:
        key = key_of(item, check.spend)
        if key in seen:
            return functools.partial(_repeated, item)
        seen.add(key)
    return None


def _repeated(item: Any) -> str:
    return f"has {shown(item)} more than once: send each item once"


def _required(check: PayloadCheck, argument: Any, value: Any) -> Sentence | None:
    if not isinstance(value, dict):
        return None
    check.spend_for(len(argument))
    if all(name in value for name in argument):
        return None
    return lambda: f"has no {_missing(argument, value)}: add what is missing"


def _dependent_required(check: PayloadCheck, argument: Any, value: Any) -> Sentence | None:
    if not isinstance(value, dict):
        return None
    check.spend_for(len(argument))
    for name, needed in argument.items():
        if name not in value:
            continue
        check.spend_for(len(needed))
        if not all(other in value for other in needed):
            return functools.partial(_missing_beside, name, needed, value)
    return None


def _missing_beside(name: str, needed: list[str], value: dict[str, Any]) -> str:
    return f"has {shown(name)}, but no {_missing(needed, value)}: add what is missing"


def _missing(wanted: list[str], value: dict[str, Any]) -> str:
    missing = [name for name in wanted if name not in value]
    named = " and no ".join(map(shown, missing[:MOST_NAMED]))
    return f"{named}, and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else named


def _format(check: PayloadCheck, argument: Any, value: Any) -> Sentence | None:
    test = _FORMATS.get(argument)
    if test is None or not isinstance(value, str):
        return None
    check.spend(len(value) // CHARACTERS_A_STEP)
    if test(value):
        return None
    return lambda: f"is {shown(value)}, which is not in the format {argument}: send it in that format"


def _is_date(text: str) -> bool:
    try:
        return len(text) == 10 and text.isascii() and date.fromisoformat(text) is not None
    except ValueError:
        return False


def _is_instant(text: str) -> bool:
    found = _INSTANT.fullmatch(text)
    if found is None:
        return False
    try:
        zone = "+00:00" if found[3] in ("Z", "z") else found[3]
        return datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}") is not None
    except ValueError:
        return False


def _is_address(version: int) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        import ipaddress

        try:
            return ipaddress.ip_address(text).version == version and "%" not in text
        except ValueError:
            return False

    return test


# Others are annotations, as the standard has it.
_FORMATS: dict[str, Callable[[str], bool]] = {
    "date": _is_date,
    "date-time": _is_instant,
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
    "ipv4": _is_address(4),
    "ipv6": _is_address(6),
}
_CHECKS: dict[str, Callable[[PayloadCheck, Any, Any], Sentence | None]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound(_at_least, "at least"),
    "maximum": _bound(_at_most, "at most"),
    "exclusiveMinimum": _bound(lambda value, bound: value > bound, "more than"),
    "exclusiveMaximum": _bound(lambda value, bound: value < bound, "less than"),
    "multipleOf": _multiple,
    "minLength": _size(str, "characters", _at_least, "at least"),
    "maxLength": _size(str, "characters", _at_most, "at most"),
    "minItems": _size(list, "items", _at_least, "at least"),
    "maxItems": _size(list, "items", _at_most, "at most"),
    "minProperties": _size(dict, "members", _at_least, "at least"),
    "maxProperties": _size(dict, "members", _at_most, "at most"),
    "pattern": _pattern,
    "uniqueItems": _unique,
    "required": _required,
    "dependentRequired": _dependent_required,
    "format": _format,
}
