"""YAML, JSON and TOML: the same values, each with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.declarative.json_text import read_json
from detent.declarative.located import LocatedValue, Unreadable, resolve
from detent.declarative.toml_text import read_toml
from detent.declarative.yaml_text import read_yaml, write

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def yaml(text: str) -> LocatedValue:
    (marked,) = read_yaml(text)
    return marked


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_what_is_written_as_yaml_reads_back_as_the_same(value: Any) -> None:
    assert yaml(write({"value": value})).value == {"value": value}


@given(VALUES, st.sampled_from([None, 1, "\t"]))
@settings(max_examples=300, deadline=None)
def test_json_is_read_as_the_standard_library_reads_it(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    assert read_json(text).value == value


@pytest.mark.parametrize(
    "text", ["on", "yes", "12:30", "2026-01-31", "01", "0x1f", "1_000", ".inf", "MON", "0 9 * * MON"]
)
def test_plain_words_of_yaml_are_text_unless_json_knows_them(text: str) -> None:
    assert yaml(f"a: {text}").value == {"a": text}


def test_json_numbers_and_literals_keep_their_type_in_yaml() -> None:
    assert yaml("[1, -2, 1.5, 1e3, true, false, null, ~, '5']").value == [
        1,
        -2,
        1.5,
        1000.0,
        True,
        False,
        None,
        None,
        "5",
    ]


def test_anchors_and_merges_keep_the_lines_of_what_they_copy() -> None:
    marked = yaml("base: &base\n  queue: slow\n  priority: 3\njob:\n  <<: *base\n  priority: 7\n")
    assert marked.value["job"] == {"queue": "slow", "priority": 7}
    assert marked.line(("job", "queue")) == 2
    assert marked.line(("job", "priority")) == 6


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nschedule: */5 * * * *\n", 2, "put it in quotes"),
        ("schedule: @daily\n", 1, "put it in quotes"),
        ("a:\n\t- b\n", 2, "tab"),
        ("a: 'x\n", 2, "not YAML"),
        ("a: &a [*a]\n", 1, "nested deeper"),
        ("a: \x07\n", 1, "not YAML"),
    ],
)
def test_yaml_that_cannot_be_read_says_on_which_line(text: str, line: int, words: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_yaml(text)
    assert caught.value.line == line and words in caught.value.message


def test_every_fault_in_readable_yaml_is_reported_with_its_line() -> None:
    marked = yaml("a: 1\na: 2\n5: x\nb: !!python/object:os.system x\nc: !!int x\n")
    assert [line for line, _ in marked.faults] == [2, 3, 4, 5]


def test_aliases_of_aliases_do_not_expand_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(Unreadable, match="expand"):
        read_yaml("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "value is missing"),
        ('{\n"a" 1}', 2, "colon"),
        ("[1,\n]", 1, "comma after the last"),
        ("[1\n 2]", 2, "comma or ]"),
        ("{a: 1}", 1, "double quotes"),
        ('{"a": 1}\n}', 2, "more text after the end"),
        ("[NaN]", 1, "value is missing"),
        ('["x\ny"]', 1, "quotes"),
        ("[" * 100, 1, "nested deeper"),
    ],
)
def test_json_that_cannot_be_read_says_on_which_line(text: str, line: int, words: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_json(text)
    assert caught.value.line == line and words in caught.value.message


def test_a_key_that_json_has_twice_is_reported() -> None:
    assert read_json('{"a": 1,\n"a": 2}').faults[0][0] == 2


def test_toml_keys_have_lines_whatever_their_values_hold() -> None:
    marked = read_toml(
        'owner = "a"\n[[jobs]]\nname = "x"\nscript = """\n[[jobs]]\nname = "no"\n"""\ntags = [ # ]\n  "a",\n]\n'
        '[jobs.target]\nheaders."X-A" = "1"\n[[jobs]]\nname = \'y\'\nat = 2027-01-01T00:00:00Z\n'
    )
    expected = {
        ("owner",): 1,
        ("jobs", 0, "name"): 3,
        ("jobs", 0, "script"): 4,
        ("jobs", 0, "tags"): 8,
        ("jobs", 0, "target", "headers", "X-A"): 12,
        ("jobs", 1, "name"): 14,
        ("jobs", 1, "at"): 15,
    }
    assert {path: marked.line(path) for path in expected} == expected
    assert marked.value["jobs"][1]["at"] == "2027-01-01T00:00:00+00:00"


def test_toml_that_cannot_be_read_says_on_which_line() -> None:
    with pytest.raises(Unreadable) as caught:
        read_toml('a = 1\nb = "x\n')
    assert caught.value.line == 2


def test_a_pointer_becomes_a_path_even_if_the_document_lacks_it() -> None:
    document = {"a/b": [{"c~d": 1}]}
    assert resolve(document, "/a~1b/0/c~0d") == ("a/b", 0, "c~d")
    assert resolve(document, "/missing") == ("missing",)
    assert resolve(document, "") == ()
