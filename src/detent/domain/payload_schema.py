"""The schema of a job's payload: JSON Schema 2020-12, without what cannot be bounded. No I/O.

Refused in a schema: references to other documents, dynamic references, `unevaluated…`, and keywords that do not exist,
since a misspelt one would check nothing. A check takes at most `MAX_STEPS`, however schema and payload were made: it
runs where a client waits for the answer, on a node that also fires. docs/howto/payload-schemas.md lists the keywords.

A reference to a secret, {"secret": "NAME"}, matches everything: only the worker learns its value.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from detent.domain.job import JobSpec
from detent.domain.patterns import BadPattern, Pattern
from detent.domain.payload_keywords import KEYWORDS, UNSUPPORTED, PayloadFault, check_value, text_of
from detent.domain.refusal import nearest, pointer_to, shown
from detent.domain.secret_ref import is_reference_name
from detent.errors import UsageError

MAX_STEPS = 50_000
MAX_DEPTH = 100
MAX_BYTES = 65_536
MAX_KEPT = 256
DIALECT = "https://json-schema.org/draft/2020-12/schema"
FIELD = "payload_schema"

Path = tuple[str | int, ...]
Schema = Mapping[str, Any] | bool


class TooManySteps(Exception):  # noqa: N818 - it says what happened
    """The check has used up its steps, or went deeper than any payload."""


class PayloadSchema:
    """A schema that was checked itself; made by `read_payload_schema`. Used by several threads."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._root = document
        self._patterns: dict[str, Pattern] = {}
        _SchemaCheck(document, self._patterns).check(document, ())
        try:
            self.fault(None)  # whether it goes round in circles does not depend on the payload
        except TooManySteps:
            raise UsageError(
                "The schema refers to itself without end, or is too complex to be checked: let a $ref that leads back "
                "stand inside properties or items.",
                f"/{FIELD}",
            ) from None

    def check(self, payload: object) -> None:
        """UsageError, with a pointer below /payload: it does not match."""
        try:
            fault = self.fault(payload)
        except TooManySteps:
            raise UsageError(
                "The payload is too large for the payload_schema of the job: its check takes too long. Send less, or "
                "let an operator simplify the schema.",
                "/payload",
            ) from None
        if fault is not None:
            place = f"{pointer_to(*fault.path)} of the payload" if fault.path else "The payload"
            end = "" if fault.text.endswith("?") else "."
            raise UsageError(f"{place} {fault.text}{end}", pointer_to("payload", *fault.path))

    def fault(self, payload: object) -> PayloadFault | None:
        """The first one; None: the payload matches."""
        return next(PayloadCheck(self._root, self._patterns).faults(self._root, payload, (), 0), None)


class PayloadCheck:
    """One check of one payload, with the steps that are left for it."""

    def __init__(self, root: Mapping[str, Any], patterns: Mapping[str, Pattern]) -> None:
        self._root = root
        self.patterns = patterns
        self._steps = MAX_STEPS

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise TooManySteps

    def faults(self, schema: Schema, value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        self.spend(1)
        if depth > MAX_DEPTH:
            raise TooManySteps
        if _is_secret(value):
            return
        if isinstance(schema, bool):
            if not schema:
                yield PayloadFault(path, f"is {shown(value)}, and payload_schema allows nothing here: leave it out")
            return
        for keyword, argument in schema.items():
            yield from check_value(self, keyword, argument, value, path)
            if (apply := _APPLICATORS.get(keyword)) is not None:
                yield from apply(self, schema, value, path, depth + 1)

    def matches(self, schema: Schema, value: Any, depth: int) -> bool:
        return next(self.faults(schema, value, (), depth), None) is None

    # --- keywords that hold other schemas ---

    def _reference(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        yield from self.faults(resolved(self._root, schema["$ref"]), value, path, depth)

    def _all_of(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        for part in schema["allOf"]:
            yield from self.faults(part, value, path, depth)

    def _any_of(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if not any(self.matches(part, value, depth) for part in schema["anyOf"]):
            yield PayloadFault(path, f"is {shown(value)}, which matches none of the {len(schema['anyOf'])} schemas "
                               "of anyOf in payload_schema: send a value that matches one")  # fmt: skip

    def _one_of(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        count = sum(self.matches(part, value, depth) for part in schema["oneOf"])
        if count != 1:
            yield PayloadFault(path, f"is {shown(value)}, which matches {count} of the {len(schema['oneOf'])} schemas "
                               "of oneOf in payload_schema: send a value that matches exactly one")  # fmt: skip

    def _not(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if self.matches(schema["not"], value, depth):
            yield PayloadFault(path, f"is {shown(value)}, which payload_schema excludes: send another value")

    def _if(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        branch = "then" if self.matches(schema["if"], value, depth) else "else"
        if branch in schema:
            yield from self.faults(schema[branch], value, path, depth)

    def _properties(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, dict):
            for name, part in schema["properties"].items():
                if name in value:
                    yield from self.faults(part, value[name], (*path, name), depth)

    def _patterned(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, dict):
            for name, member in value.items():
                for text, part in schema["patternProperties"].items():
                    if self.patterns[text].found_in(name, self.spend):
                        yield from self.faults(part, member, (*path, name), depth)

    def _additional(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if not isinstance(value, dict):
            return
        known = schema.get("properties", {})
        patterns = [self.patterns[text] for text in schema.get("patternProperties", ())]
        for name, member in value.items():
            if name in known or any(pattern.found_in(name, self.spend) for pattern in patterns):
                continue
            if schema["additionalProperties"] is False:
                near = nearest(name, known)
                advice = "leave it out" if near is None else f"did you mean {near}?"
                yield PayloadFault((*path, name), f"is a member that payload_schema does not know: {advice}")
            yield from self.faults(schema["additionalProperties"], member, (*path, name), depth)

    def _names(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, dict):
            for name in value:
                yield from self.faults(schema["propertyNames"], name, (*path, name), depth)

    def _dependent(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, dict):
            for name, part in schema["dependentSchemas"].items():
                if name in value:
                    yield from self.faults(part, value, path, depth)

    def _prefix(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, list):
            for position, (part, item) in enumerate(zip(schema["prefixItems"], value, strict=False)):
                yield from self.faults(part, item, (*path, position), depth)

    def _items(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if isinstance(value, list):
            first = len(schema.get("prefixItems", ()))
            for position, item in enumerate(value[first:], first):
                yield from self.faults(schema["items"], item, (*path, position), depth)

    def _contains(self, schema: Mapping[str, Any], value: Any, path: Path, depth: int) -> Iterator[PayloadFault]:
        if not isinstance(value, list):
            return
        count = sum(self.matches(schema["contains"], item, depth) for item in value)
        least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
        if not least <= count <= most:
            wanted = f"at least {least}" if count < least else f"at most {most}"
            yield PayloadFault(path, f"has {count} items as contains in payload_schema describes: send {wanted}")


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


class _SchemaCheck:
    """Whether a schema has only keywords that are known, with values that they can have."""

    def __init__(self, root: Mapping[str, Any], patterns: dict[str, Pattern]) -> None:
        self._root = root
        self._patterns = patterns

    def check(self, schema: Any, path: Path) -> None:
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise _wrong(path, f"is {shown(schema)}", "give a schema: an object, true or false")
        for keyword, argument in schema.items():
            self._keyword(keyword, argument, (*path, keyword))

    def _keyword(self, keyword: str, argument: Any, path: Path) -> None:
        kind = KEYWORDS.get(keyword)
        if kind is None:
            if not keyword.startswith("x-"):
                raise _unknown(keyword, path)
        elif kind == "schema":
            self.check(argument, path)
        elif kind == "schemas":
            for position, part in enumerate(_list(argument, path)):
                self.check(part, (*path, position))
        elif kind in ("schemas by name", "schemas by pattern"):
            for name, part in _object(argument, path).items():
                if kind == "schemas by pattern":
                    self._pattern(name, (*path, name))
                self.check(part, (*path, name))
        else:
            self._argument(keyword, kind, argument, path)

    def _argument(self, keyword: str, kind: str, argument: Any, path: Path) -> None:
        if kind == "pattern":
            self._pattern(argument, path)
        elif kind == "reference":
            self._reference(argument, path)
        elif keyword == "$schema" and argument != DIALECT and argument != f"{DIALECT}#":
            raise _wrong(path, f"is {shown(argument)}", f"give {DIALECT}, or leave it out")
        elif keyword == "$id" and len(path) > 1:
            raise _wrong(path, "is inside the schema", "refer to parts of the schema with #/$defs/NAME")
        elif (wanted := text_of(kind, argument)) is not None:
            raise _wrong(path, f"is {shown(argument)}", f"give {wanted}")

    def _pattern(self, text: Any, path: Path) -> None:
        if not isinstance(text, str):
            raise _wrong(path, f"is {shown(text)}", "give a regular expression as text")
        try:
            self._patterns[text] = Pattern(text)
        except BadPattern as error:
            raise _wrong(path, f"is {shown(text)}, a pattern that {error}", "write it in another way") from None

    def _reference(self, text: Any, path: Path) -> None:
        if not isinstance(text, str) or not (text == "#" or text.startswith("#/")):
            raise _wrong(path, f"is {shown(text)}", "refer to a part of this schema, such as #/$defs/address")
        try:
            target = resolved(self._root, text)
        except LookupError:
            raise _wrong(path, f"is {shown(text)}", "no such part is in the schema; add it below $defs") from None
        steps = pointer_steps(text)
        # What stands below a keyword with schemas is checked there; anything else would be used unchecked.
        if not isinstance(target, dict | bool) or not _holds_schemas(self._root, steps):
            raise _wrong(path, f"is {shown(text)}, which is no schema", "refer to one, such as #/$defs/address")


def _holds_schemas(root: Mapping[str, Any], steps: list[str]) -> bool:
    """Whether the path leads from schema to schema, by keywords that hold them."""
    position = 0
    while position < len(steps):
        kind = KEYWORDS.get(steps[position])
        if kind not in ("schema", "schemas", "schemas by name", "schemas by pattern"):
            return False
        position += 1 if kind == "schema" else 2
    return position == len(steps)


def pointer_steps(reference: str) -> list[str]:
    from urllib.parse import unquote  # a dozen milliseconds at the first start, and few jobs have a schema

    return [unquote(step).replace("~1", "/").replace("~0", "~") for step in reference[1:].split("/")[1:]]


def resolved(root: Any, reference: str) -> Any:
    """The part of the schema that a reference means. LookupError: there is none."""
    for step in pointer_steps(reference):
        if isinstance(root, dict):
            root = root[step]
        elif isinstance(root, list) and step.isascii() and step.isdecimal():
            root = root[int(step)]
        else:
            raise LookupError(step)
    return root


def _list(argument: Any, path: Path) -> list[Any]:
    if not isinstance(argument, list) or not argument:
        raise _wrong(path, f"is {shown(argument)}", "give a list of schemas")
    return argument


def _object(argument: Any, path: Path) -> dict[str, Any]:
    if not isinstance(argument, dict):
        raise _wrong(path, f"is {shown(argument)}", "give an object of schemas")
    return argument


def _wrong(path: Path, what: str, advice: str) -> UsageError:
    end = "" if advice.endswith("?") else "."
    return UsageError(f"{pointer_to(FIELD, *path)} {what}: {advice}{end}", pointer_to(FIELD, *path))


def _unknown(keyword: str, path: Path) -> UsageError:
    if keyword in UNSUPPORTED:
        return _wrong(path, "is not supported", UNSUPPORTED[keyword])
    near = nearest(keyword, KEYWORDS)
    advice = "begin the names of your own with x-" if near is None else f"did you mean {near}?"
    return _wrong(path, "is not a keyword of JSON Schema", advice)


def _is_secret(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"secret"} and is_reference_name(str(value["secret"]))


def check_payload(spec: JobSpec, payload: object) -> None:
    """Of a run of this job; UNSET: that of the job, which was checked with it, unless the job is a task without one."""
    if spec.payload_schema is None:
        return
    if payload is not UNSET or spec.payload is None:
        read_payload_schema(spec.payload_schema).check(None if payload is UNSET else payload)


def check_schema_of(spec: JobSpec) -> None:
    """The schema of a job, and the payload of its ticks. That of a task is a default, and may be missing."""
    if spec.payload_schema is None:
        return
    schema = read_payload_schema(spec.payload_schema)
    if spec.schedule is not None or spec.payload is not None:
        schema.check(spec.payload)


@functools.lru_cache(maxsize=MAX_KEPT)
def _read(text: bytes) -> PayloadSchema:
    return PayloadSchema(msgspec.json.decode(text))


def read_payload_schema(document: Mapping[str, Any]) -> PayloadSchema:
    """The schema, ready to check payloads. UsageError, with a pointer below /payload_schema: it is wrong."""
    text = msgspec.json.encode(document)
    if len(text) > MAX_BYTES:
        raise UsageError(
            f"The schema is {len(text)} bytes of JSON and {MAX_BYTES} are allowed: shorten it.", f"/{FIELD}"
        )
    return _read(text)
