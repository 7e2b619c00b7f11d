"""The OpenAPI 3.1 document, generated from the types that read requests and render answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from detent.api import idempotency
from detent.api.problems import Problem
from detent.api.routing import Endpoint
from detent.contract.job import Job
from detent.domain.job_fields import FIELDS_BY_NAME
from detent.version import __version__

JOB_FIELDS_OF_DOCUMENTS = FIELDS_BY_NAME.keys() - {"name", "allow_past"}
REFERENCE = "#/components/schemas/{name}"
KEY = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key, `dtn_…`, with the scope that the operation names. Until the first key of the cluster is "
    "created, requests that come directly from the server's own machine need none.",
}


# Published names of schemas. A name is part of the contract, so it stays when the class behind it is renamed.
SCHEMA_NAMES = {
    "ClusterHold": "Held",
    "FieldFault": "Fault",
    "PauseRequest": "Pause",
    "QueueLimitsRequest": "QueueLimits",
    "ReadinessCheck": "Ready",
    "TickState": "Ticks",
}


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    types = list(dict.fromkeys([Problem, *_types(endpoints)]))
    schemas, components = _published(msgspec.json.schema_components(types, ref_template=REFERENCE))
    _describe_job_fields(components)
    known = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "detent",
            "version": __version__,
            "description": "Every tick is recorded exactly once, as a run or with the reason why it did not run. "
            "Times are RFC 3339 in UTC; errors are problems of RFC 9457 with a JSON pointer to the wrong part.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": KEY}},
    }


def _describe_job_fields(components: dict[str, Any]) -> None:
    """A job's fields mean the same in every document that holds them all."""
    for component in components.values():
        properties = component.get("properties", {})
        if not properties.keys() >= JOB_FIELDS_OF_DOCUMENTS:
            continue
        for name, kind in properties.items():
            if name in FIELDS_BY_NAME:
                kind["description"] = FIELDS_BY_NAME[name].meaning


def _published(schema: Any) -> Any:
    """The schemas under their published names: in references, titles and the table of components."""
    match schema:
        case dict():
            return {SCHEMA_NAMES.get(name, name): _published_entry(name, value) for name, value in schema.items()}
        case list() | tuple():
            return type(schema)(_published(entry) for entry in schema)
        case _:
            return schema


def _published_entry(name: str, value: Any) -> Any:
    if name == "$ref":
        folder, _, schema = value.rpartition("/")
        return f"{folder}/{SCHEMA_NAMES.get(schema, schema)}"
    return SCHEMA_NAMES.get(value, value) if name == "title" and isinstance(value, str) else _published(value)


def _types(endpoints: Iterable[Endpoint]) -> Iterable[Any]:
    for endpoint in endpoints:
        yield from (kind for kind in (*_body_types(endpoint), endpoint.answer) if kind not in (None, type(None)))


def _body_types(endpoint: Endpoint) -> tuple[Any, ...]:
    """A body is one of these types."""
    described = endpoint.body if endpoint.upload is None else endpoint.upload.described
    return described if isinstance(described, tuple) else (described,)


def _operation(endpoint: Endpoint, known: dict[Any, Any]) -> dict[str, Any]:
    name = endpoint.handler.__name__
    operation: dict[str, Any] = {
        "operationId": f"{name}_{endpoint.path.rpartition('/')[2]}" if endpoint.path.endswith("/executions") else name,
        "summary": endpoint.summary,
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint), *_header_parameters(endpoint)],
        "responses": _responses(endpoint, known),
        "security": [] if endpoint.scope == "public" else [{"key": [endpoint.scope]}],
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.body_required,
            "content": {kind: {"schema": _schema_of(kind, endpoint, known)} for kind in endpoint.media_types},
        }
    return operation


def _schema_of(media_type: str, endpoint: Endpoint, known: dict[Any, Any]) -> Any:
    if media_type == "application/json":
        schemas = [known[kind] for kind in _body_types(endpoint)]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"type": "string", "description": "The same jobs, one per line."}


def _path_parameters(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    for name in endpoint.path_parameters:
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    _, described = msgspec.json.schema_components([endpoint.query], ref_template=REFERENCE)
    for name, kind in described[endpoint.query.__name__]["properties"].items():
        yield {"name": name, "in": "query", "required": False, "schema": _or_empty(kind)}


def _or_empty(kind: dict[str, Any]) -> dict[str, Any]:
    """An empty parameter counts as not given, so that a form may send all its fields; a flag without a value is set."""
    if kind.get("type") == "array":
        return kind
    default = {"default": kind["default"]} if "default" in kind else {}
    choices = kind.get("anyOf", [{name: value for name, value in kind.items() if name != "default"}])
    more = {"enum": ["", "1", "0"]} if kind.get("type") == "boolean" else {"const": ""}
    return {"anyOf": [*choices, more], **default}


def _header_parameters(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    _, described = msgspec.json.schema_components([endpoint.headers], ref_template=REFERENCE)
    for name, kind in described[endpoint.headers.__name__].get("properties", {}).items():
        yield {"name": name.replace("_", "-").title(), "in": "header", "required": False, "schema": kind}
    if endpoint.once:
        text = "A key that you choose for this request. Sent again within a day, the request gets the same answer."
        kind = {"type": "string", "pattern": idempotency.PATTERN}
        yield {"name": idempotency.HEADER, "in": "header", "required": False, "description": text, "schema": kind}


def _responses(endpoint: Endpoint, known: dict[Any, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": endpoint.summary}
    if endpoint.answer is not type(None):
        good["content"] = {"application/json": {"schema": known[endpoint.answer]}}
    if endpoint.answer is Job:
        good["headers"] = {"ETag": {"description": "The revision of the job.", "schema": {"type": "string"}}}
    responses = {str(status): good for status in (endpoint.status, *endpoint.other_status)}
    if "304" in responses:
        responses["304"] = {"description": "Not modified."}
    problem = {"application/problem+json": {"schema": known[Problem]}}
    responses["default"] = {"description": "The request was not served.", "content": problem}
    return responses
