"""Which parts of a target `--set` reads as JSON: the type of the part decides, as `domain.job` declares it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import inspect

from detent.domain.job import Target
from detent.domain.secret_ref import SecretRef


def reads_json(target: dict[str, Any], path: Sequence[str], value: object) -> bool:
    """Whether JSON that was given for a part is the value, and not its text. What may be text stays text, except for
    the list of words of a command, and {"secret": "NAME"} in the place of a secret. An unknown part is text: the
    server refuses it."""
    types = list(_types(target, path))
    if not any(isinstance(one, inspect.StrType | inspect.LiteralType) for one in types):
        return bool(types)
    if isinstance(value, list):
        return any(isinstance(one, inspect.ListType) and isinstance(one.item_type, inspect.StrType) for one in types)
    is_secret = isinstance(value, dict) and value.keys() == {"secret"}
    return is_secret and any(isinstance(one, inspect.StructType) and one.cls is SecretRef for one in types)


def _types(target: dict[str, Any], path: Sequence[str]) -> Iterator[inspect.Type]:
    """The types that a part may have. Without a known `type`, those of all targets."""
    found = list(_alternatives(inspect.type_info(Target)))
    found = [one for one in found if isinstance(one, inspect.StructType) and one.tag == target.get("type")] or found
    for part in path:
        found = [inner for one in found for inner in _part(one, part)]
    yield from found


def _part(one: inspect.Type, part: str) -> Iterator[inspect.Type]:
    match one:
        case inspect.StructType(fields=fields):
            for field in fields:
                if field.encode_name == part:
                    yield from _alternatives(field.type)
        case inspect.DictType(value_type=value):
            yield from _alternatives(value)
        case inspect.AnyType():
            yield one


def _alternatives(one: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(one, inspect.UnionType):
        for each in one.types:
            yield from _alternatives(each)
    else:
        yield one
