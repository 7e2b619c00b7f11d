"""Schemas of payloads: what they accept, compared with an implementation of others; what is refused; what it costs."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detent.domain import payload_check, payload_keywords, payload_schema
from detent.domain.patterns import MAX_KEPT_PLACES, BadPattern, Pattern, PatternMemory
from detent.domain.payload_check import MAX_STEPS
from detent.domain.payload_schema import read_payload_schema
from detent.errors import UsageError

ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["customer", "amount"],
    "additionalProperties": False,
    "properties": {
        "customer": {"type": "string", "pattern": "^c-[0-9]{1,6}$"},
        "amount": {"type": "integer", "minimum": 1, "maximum": 10_000},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "uniqueItems": True},
        "due": {"type": "string", "format": "date"},
    },
    "$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}}},
}


def nested(depth: int, around: Callable[[Any], Any]) -> Any:
    value: Any = True
    for _ in range(depth):
        value = around(value)
    return value


@pytest.mark.parametrize(
    ("payload", "pointer", "words"),
    [
        (None, "/payload", "asks for an object"),
        ({"customer": "c-1"}, "/payload", 'has no "amount"'),
        ({"customer": "c-1", "amount": "5"}, "/payload/amount", 'is "5", and payload_schema asks for a whole number'),
        ({"customer": "c-1", "amount": True}, "/payload/amount", "a whole number"),
        ({"customer": "c-1", "amount": 0}, "/payload/amount", "at least 1"),
        ({"customer": "x1", "amount": 1}, "/payload/customer", "matches ^c-[0-9]{1,6}$"),
        ({"customer": "c-1", "amount": 1, "lines": [{"sku": "a"}, {}]}, "/payload/lines/1", 'has no "sku"'),
        ({"customer": "c-1", "amount": 1, "lines": [{"sku": "a"}] * 2}, "/payload/lines", "more than once"),
        ({"customer": "c-1", "amount": 1, "costumer": 2}, "/payload/costumer", "did you mean customer"),
        ({"customer": "c-1", "amount": 1, "due": "2026-02-30"}, "/payload/due", "format date"),
    ],
)
def test_a_payload_that_does_not_match_is_refused_at_its_place(payload: Any, pointer: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_payload_schema(ORDER).check(payload)
    assert caught.value.pointer == pointer
    assert words in caught.value.message
    assert caught.value.message.endswith((".", "?"))


def test_a_payload_that_matches_passes_and_whole_floats_are_integers() -> None:
    read_payload_schema(ORDER).check({"customer": "c-77", "amount": 5.0, "lines": [{"sku": "a"}, {"sku": "b"}]})


def test_a_reference_to_a_secret_matches_what_its_value_would() -> None:
    read_payload_schema(ORDER).check({"customer": {"secret": "customer-id"}, "amount": 1})


@pytest.mark.parametrize(
    ("schema", "pointer", "words"),
    [
        ({"requried": ["a"]}, "/payload_schema/requried", "did you mean required"),
        ({"type": "text"}, "/payload_schema/type", "one of null, boolean"),
        ({"type": ["null"] * 2}, "/payload_schema/type", "a list of different ones"),
        ({"type": ["null"] * 5_001}, "/payload_schema/type", "a list of different ones"),
        ({"type": [{}]}, "/payload_schema/type", "a list of different ones"),
        ({"allOf": [True], "$ref": f"#/allOf/{'9' * 5_000}"}, "/payload_schema/$ref", "no such part"),
        (nested(300, lambda inner: {"not": inner}), "/payload_schema", "less deeply"),
        ({"properties": {"a": 5}}, "/payload_schema/properties/a", "give a schema"),
        ({"properties": {"a/b": {"minimum": "1"}}}, "/payload_schema/properties/a~1b/minimum", "give a number"),
        ({"$ref": "https://example.org/schema"}, "/payload_schema/$ref", "a part of this schema"),
        ({"$ref": "#/$defs/none"}, "/payload_schema/$ref", "no such part"),
        ({"default": {"type": 3}, "$ref": "#/default"}, "/payload_schema/$ref", "which is no schema"),
        ({"unevaluatedProperties": False}, "/payload_schema/unevaluatedProperties", "is not supported"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "/payload_schema/$schema", "2020-12"),
        ({"items": {"$id": "urn:x"}}, "/payload_schema/items/$id", "#/$defs/NAME"),
        ({"pattern": "(?=x)"}, "/payload_schema/pattern", "not supported"),
        ({"pattern": r"(a)\1"}, "/payload_schema/pattern", "not supported"),
        ({"pattern": "(a{999}){999}"}, "/payload_schema/pattern", "too large"),
        ({"patternProperties": {"[": True}}, "/payload_schema/patternProperties/[", "ends too early"),
        ({"$ref": "#"}, "/payload_schema", "without end"),
        ({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}}, "/payload_schema", "without end"),
        ({"enum": []}, "/payload_schema/enum", "a list of values"),
        ({"title": "x" * 70_000}, "/payload_schema", "65536 are allowed"),
    ],
)
def test_a_wrong_schema_is_refused_at_its_place(schema: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_payload_schema(schema)
    assert caught.value.pointer == pointer
    assert words in caught.value.message


def test_a_schema_may_refer_to_itself_inside_the_payload_and_have_keywords_of_its_own() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "value": {"type": "integer"}}, "x-owner": "team", "type": "object"}
    schema = read_payload_schema(tree)
    schema.check({"left": {"left": {"value": 1}}})
    with pytest.raises(UsageError) as caught:
        schema.check({"left": {"left": {"value": "1"}}})
    assert caught.value.pointer == "/payload/left/left/value"


@pytest.mark.parametrize("schema", [
    {"pattern": "^(a+)+$"},
    {"pattern": "(a|a?)+$"},
    {"items": {"enum": list(range(-1_000, 0))}},
    {"uniqueItems": True},
])  # fmt: skip
def test_no_payload_makes_a_check_costly(schema: dict[str, Any]) -> None:
    checked = read_payload_schema(schema)
    payload: Any = "a" * MAX_STEPS + "b" if "pattern" in schema else list(range(-1_000, MAX_STEPS))
    with pytest.raises(UsageError, match="takes too long"):
        checked.check(payload)


class TooManyCallsError(Exception):
    pass


def calls_of(function: Callable[[], Any], most: int) -> int:
    """How many functions are called meanwhile. Ends it after `most`, so that a test fails instead of hanging."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls > most:
            raise TooManyCallsError

    sys.setprofile(count)
    try:
        function()
    except UsageError:
        pass
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("text", ["(((){9999}){9999}){9999}", "(((a{0}){9999}){9999}){9999}", "(((){0,9})*){9999}"])
def test_empty_groups_are_not_repeated(text: str) -> None:
    assert calls_of(lambda: Pattern(text), 1_000)
    assert Pattern(f"^{text}$").found_in("", lambda _: None) and not Pattern(f"^{text}$").found_in("a", lambda _: None)


NAMES = [f"member-{number}" for number in range(3_000)]


def in_branches(part: dict[str, Any]) -> dict[str, Any]:
    """A schema that checks the part 300 times for each item."""
    return {"$defs": {"part": part}, "items": {"allOf": [{"$ref": "#/$defs/part"}] * 300}}


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (in_branches({"required": NAMES}), [dict.fromkeys(NAMES, 1)] * 20),
        (in_branches({"properties": dict.fromkeys(NAMES, True)}), [{str(n): 1 for n in range(4_000)}] * 9),
        (in_branches({"dependentRequired": {name: ["x"] for name in NAMES[:2_000]}}), [{}] * 20),
        (in_branches({"dependentSchemas": dict.fromkeys(NAMES, True)}), [{}] * 20),
        (in_branches({f"x-{name}": 1 for name in NAMES}), [{}] * 20),
        (in_branches({"format": "date-time"}), ["2026-01-01T00:00:00." + "0" * 1_000_000 + "Z"] * 20),
        (in_branches({"patternProperties": dict.fromkeys(NAMES[:400], True)}), [{"": 1}] * 20),
        ({"items": {"multipleOf": 0.5}}, [1.5] * 10_000),
        ({"const": 1}, nested(900, lambda inner: [inner])),
    ],
)  # fmt: skip
def test_what_costs_more_than_a_step_spends_more(schema: dict[str, Any], payload: Any) -> None:
    with pytest.raises(UsageError, match="takes too long"):
        read_payload_schema(schema).check(payload)


def test_members_are_looked_up_by_the_shorter_side(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[int] = []
    monkeypatch.setattr(payload_check.PayloadCheck, "spend", lambda _, steps: spent.append(steps))
    schema = read_payload_schema({"properties": dict.fromkeys(NAMES, True)})
    spent.clear()
    schema.check({"member-7": 1})
    assert sum(spent) < 10


@pytest.mark.parametrize("part", [
    {"type": "null"}, {"enum": [1]}, {"const": 1}, {"minItems": 9}, {"items": {"maxLength": 5}}, {"not": {}},
    {"oneOf": [False]}, {"items": {"pattern": "^y"}}, False,
])  # fmt: skip
def test_faults_of_branches_are_not_put_into_words(part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []

    def count(value: object) -> str:
        written.append(value)
        return "…"

    schema = read_payload_schema({"anyOf": [part] * 20})
    monkeypatch.setattr(payload_check, "shown", count)
    monkeypatch.setattr(payload_keywords, "shown", count)
    fault = schema.fault(["x" * 1_000])
    assert fault is not None and "none of the 20 schemas" in fault.text and len(written) == 1


def test_names_are_not_compared_in_branches_and_only_some_are_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    monkeypatch.setattr(payload_check, "nearest", lambda _, known: compared.append(len(list(known))))
    strict = {"properties": dict.fromkeys(NAMES, True), "additionalProperties": False}
    assert read_payload_schema({"$defs": {"a": strict}, "anyOf": [{"$ref": "#/$defs/a"}] * 9}).fault({"b": 1})
    assert compared == []
    assert read_payload_schema(strict).fault({"b": 1}) and compared == [payload_check.MOST_COMPARED]


def test_a_reference_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = read_payload_schema({"$defs": {"a": {"type": "integer"}}, "items": {"$ref": "#/$defs/a"}})
    monkeypatch.setattr(payload_schema, "resolved", None)
    schema.check(list(range(100)))


def test_many_missing_members_are_named_in_part() -> None:
    with pytest.raises(UsageError, match='"member-9", and 2990 more: add') as caught:
        read_payload_schema({"required": NAMES}).check({})
    assert len(caught.value.message) < 400


def test_what_looks_like_a_reference_to_a_secret_is_not_written_out() -> None:
    schema = read_payload_schema({"type": "null"})
    with pytest.raises(UsageError):
        schema.check({"secret": 5})


@pytest.mark.parametrize("keyword", ["minLength", "minItems", "minProperties", "minContains"])
def test_a_bound_of_any_size_has_a_sentence(keyword: str) -> None:
    values: dict[str, Any] = {"minItems": [], "minContains": [], "minProperties": {}}
    schema = {keyword: 10**400, **({"contains": True} if keyword == "minContains" else {})}
    with pytest.raises(UsageError, match="send at least 10000"):
        read_payload_schema(schema).check(values.get(keyword, ""))


# --- what patterns take of the memory ---


def test_what_patterns_remember_is_bounded_by_its_size() -> None:
    memory = PatternMemory()
    patterns = [Pattern(f"(a|b){{{count}}}x", memory) for count in (200, 150)]
    draw = random.Random(3)
    most = 0
    for _ in range(20):
        for pattern in patterns:
            pattern.found_in("".join(draw.choices("ab", k=400)), lambda _: None)
            most = max(most, memory.places)
    assert MAX_KEPT_PLACES / 2 < most <= MAX_KEPT_PLACES
    kept = sum(1 + len(reached) + len(following) for (_, reached, _), following in memory._steps.items())
    assert kept == memory.places


def test_the_patterns_of_a_schema_have_a_size_together() -> None:
    with pytest.raises(UsageError, match="more than 20000 places: shorten or remove some") as caught:
        read_payload_schema({"patternProperties": {f"(a|b){{300}}{number}": True for number in range(30)}})
    assert caught.value.pointer.startswith("/payload_schema/patternProperties/(a|b){300}")
    read_payload_schema({"items": {"pattern": "(a|b){300}"}, "prefixItems": [{"pattern": "(a|b){300}"}] * 30})


# --- compared with an implementation of others ---

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -2.0, "", "a", "ab", "2026-01-01"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner, max_size=3),
    max_leaves=6,
)
SMALL = st.integers(0, 3)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner, max_size=2)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"]),
        "enum": st.lists(VALUES, min_size=1, max_size=3), "const": VALUES, "minimum": SMALL, "maximum": SMALL,
        "exclusiveMinimum": SMALL, "exclusiveMaximum": SMALL, "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": SMALL, "maxLength": SMALL, "pattern": st.sampled_from(["^a", "b$", "^[ab]*$", "a|2"]),
        "minItems": SMALL, "maxItems": SMALL, "uniqueItems": st.booleans(), "items": inner, "contains": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2), "minContains": SMALL, "maxContains": SMALL,
        "properties": named, "additionalProperties": inner, "propertyNames": inner, "minProperties": SMALL,
        "maxProperties": SMALL, "required": st.lists(st.sampled_from(["a", "b"]), unique=True, max_size=2),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
        "dependentRequired": st.fixed_dictionaries({"a": st.just(["b"])}), "dependentSchemas": named,
        "allOf": st.lists(inner, min_size=1, max_size=2), "anyOf": st.lists(inner, min_size=1, max_size=2),
        "oneOf": st.lists(inner, min_size=1, max_size=2), "not": inner, "if": inner, "then": inner, "else": inner,
        "$defs": named,
    }  # fmt: skip
    chosen = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=4, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))


SCHEMAS = st.recursive(st.booleans() | _schemas(st.booleans()), _schemas, max_leaves=6)


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS.filter(lambda schema: isinstance(schema, dict)), value=VALUES)
def test_the_verdict_is_that_of_another_implementation(schema: dict[str, Any], value: Any) -> None:
    expected = jsonschema_rs.Draft202012Validator(schema).is_valid(value)
    assert (read_payload_schema(schema).fault(value) is None) == expected


PARTS = [
    "a",
    "b",
    ".",
    "[ab]",
    "[^a]",
    r"\d",
    "[b-z1a]",
    "[a-b0-9b]",
    r"\w",
    "(a|b)",
    "(?:ab)",
    "a*",
    "b+",
    "a?",
    "b{2}",
    "a{1,2}",
    "^",
    "$",
    "|",
]


def test_patterns_find_what_those_of_python_find() -> None:
    random.seed(7)
    tried = 0
    while tried < 3_000:
        text = "".join(random.choices(PARTS, k=random.randint(1, 5)))
        tried += 1
        pattern = Pattern(text)
        for _ in range(4):
            subject = "".join(random.choices("ab1", k=random.randint(0, 5)))
            found = re.search(text, subject, re.ASCII) is not None
            assert pattern.found_in(subject, lambda _: None) == found, (text, subject)


@pytest.mark.parametrize(
    "text", ["*", "a**", "(", ")", "[z-a]", "[a-cx-z", "a{2,1}", "a{", "(?<n>a)", r"\p{L}", r"\b", r"\xZZ", "x" * 501]
)
def test_patterns_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(text)
