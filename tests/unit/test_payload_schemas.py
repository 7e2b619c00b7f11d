"""Schemas of payloads: what they accept, compared with an implementation of others; what is refused; what it costs."""

from __future__ import annotations

import random
import re
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detent.domain.patterns import BadPattern, Pattern
from detent.domain.payload_schema import MAX_STEPS, read_payload_schema
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
    "text", ["*", "a**", "(", ")", "[z-a]", "a{2,1}", "a{", "(?<n>a)", r"\p{L}", r"\b", r"\xZZ", "x" * 501]
)
def test_patterns_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(text)
