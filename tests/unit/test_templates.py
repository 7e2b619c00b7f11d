"""Templates of HTTP targets: what is refused, what they render, and that no value leaves its place."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from detent.domain.documents import encode_json
from detent.domain.job import HttpTarget
from detent.domain.target_url import TargetError
from detent.domain.template import ESCAPED, MAX_PLACEHOLDERS, TemplateError, as_literal, parse
from detent.domain.template_facts import FactError
from detent.domain.template_places import body_template, header_template, render, render_url, url_template
from tests.targets.target_helpers import RUN_ID, call_of

LIMIT = 100_000
TARGET = HttpTarget(url="http://example.org/")
SCALARS = st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()
DOCUMENTS = st.recursive(
    st.none() | SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def text_of(value: object) -> str:
    return value if isinstance(value, str) else encode_json(value)


def rendered(template: str, payload: Any = None, **facts: Any) -> str:
    return render(header_template(template), call_of(TARGET, payload, **facts), LIMIT)


def rendered_body(body: Any, payload: Any = None, content_type: str = "application/json", **facts: Any) -> str:
    return render(body_template(body, content_type), call_of(TARGET, payload, **facts), LIMIT)


def rendered_url(template: str, payload: Any = None, **facts: Any) -> str:
    return str(render_url(url_template(template), call_of(TARGET, payload, **facts)))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ job }}", "nightly-report"),
        ("{{job}}/{{run_id}}", f"nightly-report/{RUN_ID}"),
        ("{{ attempt }} {{ token }}", "2 8589934593"),
        ("{{ idempotency_key }}", "nightly-report:2026-03-01T06:30:00Z"),
        ("{{ scheduled_at }}", "2026-03-01T06:30:00Z"),
        ("{{ scheduled_at.date }} {{ scheduled_at.time }}", "2026-02-28 22:30:00"),
        ("{{ scheduled_at.hour }} {{ scheduled_at.month }} {{ scheduled_at.year }}", "2026-02-28T22 2026-02 2026"),
        ("{{ scheduled_at.week }}", "2026-W09"),
        ("{{ scheduled_at.unix }}", "1772346600"),
        ("{{ scheduled_at.local }}", "2026-02-28T22:30:00-08:00"),
        ("{{ scheduled_at | %Y%m%d-%H%M }}", "20260228-2230"),
        ("{{ scheduled_at|%j%% }}", "059%"),
        ("{{ window_start }} {{ window_end.date }}", "2026-02-27T06:30:00Z 2026-02-28"),
        ("{{ payload.customer.id }} {{ payload.items.1 }}", "17 b"),
        ("{{ payload.on }} {{ payload.rate }}", "true 0.5"),
        ('a {{ "{{" }} b }} {{"{{"}}', "a {{ b }} {{"),
        ("no placeholder", "no placeholder"),
    ],
)
def test_a_template_renders_facts_and_payload(template: str, text: str) -> None:
    payload = {"customer": {"id": 17}, "items": ["a", "b"], "on": True, "rate": 0.5}
    start = datetime(2026, 2, 27, 6, 30, tzinfo=UTC)
    zone = "America/Los_Angeles"
    assert rendered(template, payload, attempt=2, timezone=zone, window=lambda: start) == text


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("a{{ schedled_at }}", ["character 2", "did you mean scheduled_at?", "known are job, job_id"]),
        ("{{ date }}", ["did you mean scheduled_at.date?"]),
        ("{{ payloads.x }}", ["did you mean payload.x?"]),
        ("{{ secret }}", ["is not known"]),
        ("{{ env.HOME }}", ["is not known"]),
        ("{{ scheduled_at.dat }}", ["did you mean scheduled_at.date?", "the parts of scheduled_at are"]),
        ("{{ scheduled_at.date.x }}", ["is not known"]),
        ("{{ job.name }}", ["job has no parts"]),
        ("{{ job", ["character 1", "has no end", ESCAPED]),
        ("{{ }}", ["is not the name of a fact"]),
        ("{{ 1 + 1 }}", ["is not the name of a fact"]),
        ("{{ payload['x'] }}", ["is not the name of a fact"]),
        ("{{ payload.__class__() }}", ["is not the name of a fact"]),
        ("{{{ job }}}", ["is not the name of a fact"]),
        ("{{ job | %Y }}", ["only scheduled_at, window_start, window_end"]),
        ("{{ scheduled_at | }}", ["is empty"]),
        ("{{ scheduled_at | %Q }}", ["%Q", "use %Y"]),
        ("{{ scheduled_at | % }}", ["which is not known"]),
        ("{{ job }}" * (MAX_PLACEHOLDERS + 1), ["more than 200 placeholders"]),
    ],
)
def test_a_template_that_cannot_be_read_is_refused_with_its_position(template: str, words: list[str]) -> None:
    with pytest.raises(TemplateError) as refused:
        parse(template)
    for each in words:
        assert each in str(refused.value)


@pytest.mark.parametrize(
    ("template", "payload", "words"),
    [
        ("{{ payload.customer.id }}", None, "payload.customer, of payload.customer.id, is missing"),
        ("{{ payload.customer.id }}", {"customer": {}}, "payload.customer.id is missing"),
        ("{{ payload.items.2 }}", {"items": [1, 2]}, "payload.items.2 is missing"),
        ("{{ payload.x }}", {"x": None}, "payload.x is null"),
        ("{{ payload.x }}", {"x": {"a": 1}}, 'payload.x is {"a":1}'),
        ("{{ payload }}", [1], "payload is [1]"),
        ("{{ window_start }}", None, "no tick precedes the run"),
        ("{{ payload.x }}", {"x": "a\r\nEvil: 1"}, "line break"),
    ],
)
def test_a_run_that_lacks_a_value_says_which(template: str, payload: Any, words: str) -> None:
    with pytest.raises(FactError, match=re.escape(words)):
        rendered(template, payload)


def test_a_member_of_a_document_keeps_its_kind_and_a_part_of_a_text_becomes_text() -> None:
    body = {
        "day": "{{ scheduled_at.date }}",
        "all": "{{ payload }}",
        "n": ["{{ attempt }}", "#{{ attempt }}"],
        "x": 1.5,
    }
    payload = {"quote": '"\n', "null": None}
    assert json.loads(rendered_body(body, payload)) == {
        "day": "2026-03-01",
        "all": payload,
        "n": [1, "#1"],
        "x": 1.5,
    }


def test_a_text_that_is_json_has_values_outside_quotes_and_parts_of_texts_inside() -> None:
    body = '{"day": {{ scheduled_at.date }}, "a": {"b": {{ payload.x }}}, "c": "\\"{{ payload.y }}!"}'
    found = json.loads(rendered_body(body, {"x": [1, None], "y": 'q"\\'}))
    assert found == {"day": "2026-03-01", "a": {"b": [1, None]}, "c": '"q"\\!'}


@pytest.mark.parametrize(
    "body",
    [
        "day={{ scheduled_at.date }}",
        '{"a": 1{{ attempt }}}',
        '{"a": {{ attempt }}{{ attempt }}}',
        "{ {{ payload.key }}: 1}",
        '{"a": "\\{{ payload.x }}"}',
        '{"a": "\\u00{{ payload.x }}"}',
        '{"a": tru{{ payload.x }}}',
    ],
)
def test_a_text_that_would_not_be_json_is_refused(body: str) -> None:
    with pytest.raises(TemplateError, match=r"The body is not JSON .* Content-Type"):
        body_template(body, "application/json")


def test_a_text_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(TemplateError, match="nested too deeply"):
        body_template("[" * 60_000, "application/json")


def test_a_fault_inside_a_document_says_where_it_is() -> None:
    with pytest.raises(TemplateError) as refused:
        body_template({"a": [{"b": "{{ nothing }}"}]}, "application/json")
    assert refused.value.path == ("a", 0, "b")
    with pytest.raises(TemplateError, match="keys are no templates"):
        body_template({"{{ job }}": 1}, "application/json")


@pytest.mark.parametrize(
    "url",
    [
        "{{ payload.url }}",
        "{{ payload.scheme }}://example.org/",
        "https://{{ payload.host }}/",
        "https://example.org{{ payload.host }}",
        "https://example.org:{{ payload.port }}/",
        "https://example.{{ payload.tld }}/x",
        "//{{ payload.host }}/x",
        "https:/{{ payload.host }}/x",
        "https:///{{ payload.host }}/x",
        "https://example.org\\{{ payload.x }}/",
        "https://user:{{ payload.x }}@example.org/",
        "ftp://example.org/{{ payload.x }}",
        "https://example.org/#{{ payload.x }}",
        "https://example.org/{{ payload.x }}/../y",
        "https://example.org/a b/{{ payload.x }}",
    ],
)
def test_no_placeholder_can_stand_in_scheme_host_port_or_fragment(url: str) -> None:
    with pytest.raises((TemplateError, TargetError)):
        url_template(url)


def test_a_url_encodes_values_and_keeps_what_is_written() -> None:
    url = "https://Example.org/é/%41/{{ payload.id }}.json?q={{ payload.q }}&d={{ scheduled_at.date }}#top"
    found = rendered_url(url, {"id": "a/b?c#d%é", "q": "x&y=z +"})
    encoded = "https://example.org/%C3%A9/A/a%2Fb%3Fc%23d%25%C3%A9.json?q=x%26y%3Dz%20%2B&d=2026-03-01#top"
    assert found == encoded
    assert rendered_url('https://example.org/{{ "{{" }}') == "https://example.org/%7B%7B"
    assert rendered_url("https://example.org?x={{ payload }}", 1) == "https://example.org/?x=1"


@pytest.mark.parametrize("value", [".", "..", ""])
def test_a_value_cannot_name_another_place_of_the_path(value: str) -> None:
    with pytest.raises(FactError, match="a segment of the path"):
        rendered_url("https://example.org/customers/{{ payload }}/orders", value)
    with pytest.raises(FactError, match="a segment of the path"):
        rendered_url("https://example.org/customers/{{ payload }}", value)
    if value:
        with pytest.raises(FactError, match="a segment of the path"):
            rendered_url("https://example.org/a/.{{ payload }}", ".")
    assert rendered_url("https://example.org/a?x={{ payload }}", value) == f"https://example.org/a?x={value}"


def test_a_rendered_text_has_a_bound() -> None:
    template = body_template(["{{ payload }}"] * 100, "application/json")
    with pytest.raises(FactError, match="longer than 1000 characters"):
        render(template, call_of(TARGET, "x" * 100), 1000)


# --- no value leaves its place ---


@given(st.text())
def test_any_text_can_be_written_as_a_literal(text: str) -> None:
    assert "".join(map(str, parse(as_literal(text)))) == text


@given(st.text())
def test_a_text_is_read_or_refused(text: str) -> None:
    for each in (text, "{{" + text + "}}", text.replace("x", "{{ job }}")):
        try:
            parse(each)
        except TemplateError as error:
            assert str(error).endswith(".")


@given(SCALARS, SCALARS)
def test_a_value_in_a_url_adds_no_segment_no_parameter_and_no_host(first: object, second: object) -> None:
    template = "https://example.org:8443/a/{{ payload.0 }}/b?x={{ payload.1 }}&y=1"
    try:
        url = render_url(url_template(template), call_of(TARGET, [first, second]))
    except FactError:
        assume(first not in (".", "..", "") and len(f"{first}{second}") < 500)
        raise
    assert (url.scheme, url.host, url.port, url.fragment) == ("https", "example.org", 8443, "")
    raw = str(url)
    assert raw.isascii()
    path, _, query = raw.removeprefix("https://example.org:8443").partition("?")
    assert [unquote(part) for part in path.split("/")] == ["", "a", text_of(first), "b"]
    pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    assert pairs == [("x", text_of(second)), ("y", "1")]


@given(SCALARS)
def test_a_value_in_a_header_adds_no_line(value: object) -> None:
    try:
        text = rendered("Bearer {{ payload }}", value)
    except FactError:
        assert re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", str(value))
        return
    assert text == f"Bearer {text_of(value)}"
    assert not re.search(r"[\r\n\0]", text)


@given(DOCUMENTS, SCALARS)
def test_a_value_in_json_is_that_value_and_nothing_else(value: Any, part: object) -> None:
    payload = {"value": value, "part": part}
    expected = {"a": value, "b": f"<{text_of(part)}>", "c": 1}
    document = {"a": "{{ payload.value }}", "b": "<{{ payload.part }}>", "c": 1}
    text = '{"a": {{ payload.value }}, "b": "<{{ payload.part }}>", "c": 1}'
    for body in (document, text):
        assert json.loads(rendered_body(body, payload)) == expected


@given(SCALARS)
def test_a_value_in_a_form_or_in_markup_stays_a_value(value: object) -> None:
    form = rendered_body("a={{ payload }}&b=1", value, "application/x-www-form-urlencoded; charset=utf-8")
    assert parse_qsl(form, keep_blank_values=True, strict_parsing=True) == [("a", text_of(value)), ("b", "1")]
    markup = rendered_body('<a b="{{ payload }}">{{ payload }}</a>', value, "application/soap+xml")
    quoted, _, inner = markup.removeprefix('<a b="').removesuffix("</a>").partition('">')
    assert html.unescape(quoted) == html.unescape(inner)
    assert not set("<>\"'") & {*quoted, *inner}
    assert rendered_body("{{ payload }}", value, "text/plain") == text_of(value)
