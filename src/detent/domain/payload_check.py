"""One check of a payload by the schema of its job, in a bounded number of steps. No I/O."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from detent.domain.patterns import Pattern
from detent.domain.payload_keywords import Path, PayloadFault, Sentence, check_value
from detent.domain.refusal import nearest, shown
from detent.domain.secret_ref import is_reference_name

MAX_STEPS = 50_000
MAX_DEPTH = 100
OPERATIONS_A_STEP = 20
"""So many comparisons of names cost as much as one step."""
MOST_COMPARED = 200
"""Members whose names are compared with one that is not known."""

Schema = Mapping[str, Any] | bool


class TooManySteps(Exception):  # noqa: N818 - it says what happened
    """The check has used up its steps, or went deeper than any payload."""


class PayloadCheck:
    """One check of one payload, with the steps that are left for it. What costs more than a step spends more, so that
    the steps bound the time."""

    def __init__(self, patterns: Mapping[str, Pattern], targets: Mapping[str, Schema]) -> None:
        """`targets`: what the references of the schema mean."""
        self.patterns = patterns
        self._targets = targets
        self._steps = MAX_STEPS
        self._hidden = 0

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise TooManySteps

    def spend_for(self, operations: int) -> None:
        self.spend(operations // OPERATIONS_A_STEP)

    def fault(self, path: Path, sentence: Sentence) -> PayloadFault:
        """Without words, where only its existence counts."""
        return PayloadFault(path, "" if self._hidden else sentence())

    def faults(self, schema: Schema, value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        self.spend(1)
        if depth > MAX_DEPTH:
            raise TooManySteps
        if _is_secret(value):
            return
        if isinstance(schema, bool):
            if not schema:
                yield self.fault(
                    path, lambda: f"is {shown(value)}, and payload_schema allows nothing here: leave it out"
                )
            return
        self.spend_for(len(schema))
        for keyword, argument in schema.items():
            yield from check_value(self, keyword, argument, value, path)
            if (apply := _APPLICATORS.get(keyword)) is not None:
                yield from apply(self, schema, value, path, depth + 1)

    def matches(self, schema: Schema, value: Any, depth: int) -> bool:
        self._hidden += 1
        try:
            return next(self.faults(schema, value, (), depth), None) is None
        finally:
            self._hidden -= 1

    # --- keywords that hold other schemas ---

    def _reference(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        yield from self.faults(self._targets[schema["$ref"]], value, path, depth)

    def _all_of(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        for part in schema["allOf"]:
            yield from self.faults(part, value, path, depth)

    def _any_of(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if not any(self.matches(part, value, depth) for part in schema["anyOf"]):
            yield self.fault(path, lambda: f"is {shown(value)}, which matches none of the {len(schema['anyOf'])} "
                             "schemas of anyOf in payload_schema: send a value that matches one")  # fmt: skip

    def _one_of(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        count = sum(self.matches(part, value, depth) for part in schema["oneOf"])
        if count != 1:
            yield self.fault(path, lambda: f"is {shown(value)}, which matches {count} of the {len(schema['oneOf'])} "
                             "schemas of oneOf in payload_schema: send a value that matches exactly one")  # fmt: skip

    def _not(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if self.matches(schema["not"], value, depth):
            yield self.fault(path, lambda: f"is {shown(value)}, which payload_schema excludes: send another value")

    def _if(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        branch = "then" if self.matches(schema["if"], value, depth) else "else"
        if branch in schema:
            yield from self.faults(schema[branch], value, path, depth)

    def _properties(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, dict):
            known = schema["properties"]
            fewer, others = (known, value) if len(known) <= len(value) else (value, known)
            self.spend_for(len(fewer))
            for name in fewer:
                if name in others:
                    yield from self.faults(known[name], value[name], (*path, name), depth)

    def _patterned(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, dict):
            for name, member in value.items():
                for text, part in schema["patternProperties"].items():
                    if self.patterns[text].found_in(name, self.spend):
                        yield from self.faults(part, member, (*path, name), depth)

    def _additional(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if not isinstance(value, dict):
            return
        known, patterned = schema.get("properties", {}), schema.get("patternProperties", ())
        self.spend_for(len(value) + len(patterned))
        patterns = [self.patterns[text] for text in patterned]
        for name, member in value.items():
            if name in known or any(pattern.found_in(name, self.spend) for pattern in patterns):
                continue
            if schema["additionalProperties"] is False:
                yield self.fault((*path, name), functools.partial(_unknown_member, name, known))
            yield from self.faults(schema["additionalProperties"], member, (*path, name), depth)

    def _names(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, dict):
            for name in value:
                yield from self.faults(schema["propertyNames"], name, (*path, name), depth)

    def _dependent(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, dict):
            self.spend_for(len(schema["dependentSchemas"]))
            for name, part in schema["dependentSchemas"].items():
                if name in value:
                    yield from self.faults(part, value, path, depth)

    def _prefix(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, list):
            for position, (part, item) in enumerate(zip(schema["prefixItems"], value, strict=False)):
                yield from self.faults(part, item, (*path, position), depth)

    def _items(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, list):
            for position in range(len(schema.get("prefixItems", ())), len(value)):
                yield from self.faults(schema["items"], value[position], (*path, position), depth)

    def _contains(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if not isinstance(value, list):
            return
        count = sum(self.matches(schema["contains"], item, depth) for item in value)
        least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
        if not least <= count <= most:
            wanted, bound = ("at least", least) if count < least else ("at most", most)
            yield self.fault(path, lambda: f"has {count} items as contains in payload_schema describes: send {wanted} "
                             f"{shown(bound)}")  # fmt: skip


_APPLICATORS = {
    "$ref": PayloadCheck._reference,
    "allOf": PayloadCheck._all_of,
    "anyOf": PayloadCheck._any_of,
    "oneOf": PayloadCheck._one_of,
    "not": PayloadCheck._not,
    "if": PayloadCheck._if,
    "properties": PayloadCheck._properties,
    "patternProperties": PayloadCheck._patterned,
    "additionalProperties": PayloadCheck._additional,
    "propertyNames": PayloadCheck._names,
    "dependentSchemas": PayloadCheck._dependent,
    "prefixItems": PayloadCheck._prefix,
    "items": PayloadCheck._items,
    "contains": PayloadCheck._contains,
}


def _unknown_member(name: str, known: Mapping[str, Schema]) -> str:
    near = nearest(name, itertools.islice(known, MOST_COMPARED))
    advice = "leave it out" if near is None else f"did you mean {near}?"
    return f"is a member that payload_schema does not know: {advice}"


def _is_secret(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) != 1:
        return False
    name = value.get("secret")
    return isinstance(name, str) and is_reference_name(name)
