"""The schema of a job's payload: JSON Schema 2020-12, without what cannot be bounded. No I/O.

Refused in a schema: references to other documents, dynamic references, `unevaluated…`, and keywords that do not exist,
since a misspelt one would check nothing. A check takes at most `MAX_STEPS`, however schema and payload were made: it
runs where a client waits for the answer, on a node that also fires. docs/howto/payload-schemas.md lists the keywords.

A reference to a secret, {"secret": "NAME"}, matches everything: only the worker learns its value.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from detent.domain.job import JobSpec
from detent.domain.patterns import BadPattern, Pattern, PatternMemory
from detent.domain.payload_check import PayloadCheck, Schema, TooManySteps
from detent.domain.payload_keywords import KEYWORDS, UNSUPPORTED, Path, PayloadFault, text_of
from detent.domain.refusal import nearest, pointer_to, shown
from detent.errors import UsageError

MAX_BYTES = 65_536
MAX_PLACES = 20_000
"""Of all patterns of a schema."""
MAX_NESTED = 200
MAX_KEPT = 64
DIALECT = "https://json-schema.org/draft/2020-12/schema"
FIELD = "payload_schema"


class PayloadSchema:
    """A schema that was checked itself; made by `read_payload_schema`. Used by several threads."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._root = document
        made = _SchemaCheck(document)
        made.check(document, ())
        self._patterns, self._targets = made.patterns, made.targets
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
        try:
            return next(PayloadCheck(self._patterns, self._targets).faults(self._root, payload, (), 0), None)
        except RecursionError:
            raise TooManySteps from None


class _SchemaCheck:
    """Whether a schema has only keywords that are known, with values that they can have."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._memory = PatternMemory()
        self._places = 0
        self.patterns: dict[str, Pattern] = {}
        self.targets: dict[str, Schema] = {}

    def check(self, schema: Any, path: Path) -> None:
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise _wrong(path, f"is {shown(schema)}", "give a schema: an object, true or false")
        if len(path) > MAX_NESTED:
            raise UsageError(f"The schema has parts below {MAX_NESTED} others: nest them less deeply.", f"/{FIELD}")
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
        if text in self.patterns:
            return
        try:
            pattern = Pattern(text, self._memory)
        except BadPattern as error:
            raise _wrong(path, f"is {shown(text)}, a pattern that {error}", "write it in another way") from None
        self.patterns[text] = pattern
        self._places += pattern.places
        if self._places > MAX_PLACES:
            raise _wrong(
                path,
                f"is {shown(text)}, and with their repetitions the patterns of the schema have more than {MAX_PLACES} "
                "places",
                "shorten or remove some",
            )

    def _reference(self, text: Any, path: Path) -> None:
        if not isinstance(text, str) or not (text == "#" or text.startswith("#/")):
            raise _wrong(path, f"is {shown(text)}", "refer to a part of this schema, such as #/$defs/address")
        if text in self.targets:
            return
        try:
            target = resolved(self._root, text)
        except LookupError:
            raise _wrong(path, f"is {shown(text)}", "no such part is in the schema; add it below $defs") from None
        steps = pointer_steps(text)
        # What stands below a keyword with schemas is checked there; anything else would be used unchecked.
        if not isinstance(target, dict | bool) or not _holds_schemas(self._root, steps):
            raise _wrong(path, f"is {shown(text)}, which is no schema", "refer to one, such as #/$defs/address")
        self.targets[text] = target


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
        elif isinstance(root, list) and len(step) < 10 and step.isascii() and step.isdecimal():
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
