"""The templates of HTTP targets, read once for each definition and rendered for each call."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from msgspec import UnsetType
from yarl import URL

from detent.domain.http_rules import content_type_of
from detent.domain.job import HttpTarget
from detent.domain.run import Call
from detent.domain.target_rules import MAX_HEADER_CHARACTERS
from detent.domain.target_url import TargetError
from detent.domain.template import TemplateError, is_template
from detent.domain.template_facts import FactError
from detent.domain.template_places import (
    Compiled,
    UrlTemplate,
    body_template,
    header_template,
    placeholders,
    render,
    render_url,
    url_template,
)

LONGEST_BODY = 8_388_608
MAX_KEPT = 1024


class RequestTemplates(NamedTuple):
    """None: the URL is no template."""

    url: UrlTemplate | None
    headers: tuple[tuple[str, Compiled], ...]


def request_templates(url: str, headers: tuple[tuple[str, str], ...]) -> RequestTemplates | None:
    """None: nothing is a template, as nearly always."""
    found = tuple((name, value) for name, value in headers if is_template(value))
    if not found and not is_template(url):
        return None
    try:
        address = url_template(url) if is_template(url) else None
        return RequestTemplates(address, tuple((name, header_template(value)) for name, value in found))
    except TemplateError as error:
        raise TargetError("/target", str(error)) from None


def rendered_url(template: UrlTemplate, call: Call) -> URL:
    try:
        return render_url(template, call)
    except FactError as error:
        raise _unrendered("url", error) from None


def rendered_headers(templates: RequestTemplates, call: Call) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    left = MAX_HEADER_CHARACTERS
    for name, template in templates.headers:
        try:
            found.append((name, render(template, call, left)))
        except FactError as error:
            raise _unrendered(f"headers.{name}", error) from None
        left -= len(found[-1][1])
    return found


class BodyTemplates:
    """The bodies of recent targets. They are found by identity: all calls of a definition have the same target, unless
    secrets were filled in, and then nothing is kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[HttpTarget, Compiled | bytes]] = OrderedDict()

    def body(self, call: Call) -> bytes:
        """TargetError if it cannot be rendered."""
        assert isinstance(call.target, HttpTarget)
        found = _body_of(call.target) if call.filled else self._known(call.target)
        if isinstance(found, bytes):
            return found
        try:
            return render(found, call, LONGEST_BODY).encode()
        except FactError as error:
            raise _unrendered("body", error) from None

    def _known(self, target: HttpTarget) -> Compiled | bytes:
        kept = self._kept.get(id(target))
        if kept is not None and kept[0] is target:
            return kept[1]
        found = _body_of(target)
        self._kept[id(target)] = target, found
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return found


def _body_of(target: HttpTarget) -> Compiled | bytes:
    """Bytes where nothing varies."""
    assert not isinstance(target.body, UnsetType)
    try:
        found = body_template(target.body, content_type_of(target))
    except TemplateError as error:
        raise TargetError("/target/body", str(error)) from None
    return found if placeholders(found) else "".join(map(str, found)).encode()


def _unrendered(part: str, error: FactError) -> TargetError:
    return TargetError(f"/target/{part}", f"target.{part} could not be rendered, so nothing was called: {error}.")
