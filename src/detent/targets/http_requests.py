"""The requests of HTTP targets: what all calls of a target share is checked and written once, the rest for each one."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec import UNSET
from multidict import CIMultiDict
from yarl import URL

from detent.domain.callbacks import TOKEN_HEADER, URL_HEADER
from detent.domain.http_rules import WITH_BODY
from detent.domain.job import HttpTarget
from detent.domain.run import Call
from detent.domain.secret_ref import SecretRef
from detent.domain.target_rules import CALL_HEADER, check_headers
from detent.domain.target_url import TargetError, parse_url
from detent.domain.webhooks import signed
from detent.targets.exchange import head_of, header_lines, request_of
from detent.targets.facts import fact_headers
from detent.targets.http_templates import (
    BodyTemplates,
    RequestTemplates,
    rendered_headers,
    rendered_url,
    request_templates,
)
from detent.targets.text import visible
from detent.telemetry.tracing import traceparent_of
from detent.version import __version__

_bodies = BodyTemplates()


class PreparedRequest(NamedTuple):
    """What every call of a target shares."""

    method: str
    url: URL
    label: str
    origin: str
    host: str
    port: int
    headers: CIMultiDict[str]
    head: str
    """The request line and the headers as they are sent. Written for each call they take 1.3 µs."""
    traced: bool
    typed: bool
    templates: RequestTemplates | None = None
    """What differs between the calls of the target; None: nothing does."""
    tls: ssl.SSLContext | bool = True
    """The certificates of the job; True: it has none of its own."""
    shows_certificate: bool = False


class _Address(NamedTuple):
    url: URL
    label: str
    origin: str


@lru_cache(maxsize=1024)
def _address(url: str) -> _Address:
    """Parsed, and as messages name it. It has no secrets, so that it is also kept for calls that have some: parsing it
    was half of what filling them in cost."""
    return _address_of(parse_url(url))


def _address_of(url: URL) -> _Address:
    return _Address(url, str(url.with_query(None).with_fragment(None)), str(url.origin()))


def _prepare(method: str, url: str, headers: tuple[tuple[str, str | SecretRef], ...]) -> PreparedRequest:
    """Checked here too, not only at registration: the rules may be stricter now."""
    check_headers(dict(headers))
    plain = [(name, value) for name, value in headers if isinstance(value, str)]
    if len(plain) < len(headers):
        raise TargetError(
            "/target/headers", "A header refers to a secret, and only a worker of a cluster can fill it in."
        )
    merged = CIMultiDict({"User-Agent": f"detent/{__version__}", "Accept": "*/*", "Accept-Encoding": "identity"})
    merged.update(plain)
    merged[CALL_HEADER] = "run"
    templates = request_templates(url, tuple(plain))
    if templates is not None and templates.url is not None:
        address = _address_of(templates.url.origin)
    else:
        address = _address(url)
    return _request_to(method, address, merged, templates)


def _request_to(
    method: str, address: _Address, headers: CIMultiDict[str], templates: RequestTemplates | None
) -> PreparedRequest:
    url, label, origin = address
    head = head_of(method, url, headers.items())
    traced, typed = "traceparent" in headers, "Content-Type" in headers
    return PreparedRequest(
        method, url, label, origin, url.raw_host or "", url.port or 0, headers, head, traced, typed, templates
    )


_prepare_once = lru_cache(maxsize=1024)(_prepare)


def prepared_request(call: Call) -> PreparedRequest:
    """The same for all calls of a job. One with secrets is not kept: their values would stay in memory."""
    assert isinstance(call.target, HttpTarget)
    method, url, headers = call.target.method, call.target.url, tuple(call.target.headers.items())
    prepared = _prepare(method, url, headers) if call.filled else _prepare_once(method, url, headers)
    return prepared if prepared.templates is None else _rendered(prepared, prepared.templates, call)


def _rendered(prepared: PreparedRequest, templates: RequestTemplates, call: Call) -> PreparedRequest:
    headers = prepared.headers.copy()
    headers.update(rendered_headers(templates, call))
    if templates.url is None:
        address = _Address(prepared.url, prepared.label, prepared.origin)
    else:
        address = _address_of(rendered_url(templates.url, call))
    return _request_to(prepared.method, address, headers, None)


def _body(call: Call) -> bytes | None:
    """A signed call always has one: libraries that verify it read the body as JSON."""
    target = call.target
    assert isinstance(target, HttpTarget)
    if target.body is not UNSET:
        return _bodies.body(call)
    if target.method not in WITH_BODY or (call.payload is None and call.signing is None):
        return None
    return msgspec.json.encode(call.payload)


def request_bytes(call: Call, prepared: PreparedRequest) -> bytes:
    """The whole request, as it is sent; TargetError if a template cannot be rendered."""
    body = _body(call)
    own = _own_headers(call, prepared, body)
    head = prepared.head if call.signing is None else _without(prepared, own).head
    return request_of(prepared.method, head + header_lines(own.items()), body)


def headers_of(call: Call) -> CIMultiDict[str]:
    """The headers of this call of an HTTP target, without those of the connection."""
    prepared = prepared_request(call)
    headers = prepared.headers.copy()
    headers.update(_own_headers(call, prepared, _body(call)))
    return headers


def _own_headers(call: Call, prepared: PreparedRequest, body: bytes | None) -> dict[str, str]:
    """What other calls of the target do not have."""
    headers = fact_headers(call)
    if body is not None and not prepared.typed:
        headers["Content-Type"] = "application/json"
    if not prepared.traced:
        headers["traceparent"] = call.traceparent or traceparent_of(call.run_id)
    if call.callback is not None:
        headers[URL_HEADER] = call.callback.url
        headers[TOKEN_HEADER] = call.callback.credential
    if call.signing is not None:
        headers.update(signed(visible(call.idempotency_key), call.signing.at, body or b"", call.signing.keys))
    return headers


def _without(prepared: PreparedRequest, own: Mapping[str, str]) -> PreparedRequest:
    """A job may have headers with the names of those that sign its calls: they are not sent."""
    doubled = [name for name in own if name in prepared.headers]
    if not doubled:
        return prepared
    headers = prepared.headers.copy()
    for name in doubled:
        del headers[name]
    return _request_to(prepared.method, _Address(prepared.url, prepared.label, prepared.origin), headers, None)
