"""The committed description of the API, and what a change of it would break.

    python -m tests.api.openapi_file

writes docs/openapi.json and docs/problems.md anew and prints every change that an existing client may stumble over:
something it used is gone, or something it did not send is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from detent.api import problem_pages
from detent.api.app import all_endpoints
from detent.api.openapi import document

DOCS = Path(__file__).parents[2] / "docs"
OPENAPI = DOCS / "openapi.json"
PROBLEMS = DOCS / "problems.md"

Document = dict[str, Any]


def generated() -> Document:
    found: Document = json.loads(msgspec.json.encode(document(all_endpoints())))
    return found


def committed() -> Document:
    found: Document = json.loads(OPENAPI.read_text("utf-8"))
    return found


def text_of(described: Document) -> str:
    return json.dumps(described, indent=2, ensure_ascii=False) + "\n"


def breaking(before: Document, after: Document) -> list[str]:
    """A sentence for each change that an existing client may stumble over."""
    return [*_paths(before["paths"], after["paths"]), *_schemas(_all_schemas(before), _all_schemas(after), after)]


def _all_schemas(described: Document) -> Document:
    found: Document = described["components"]["schemas"]
    return found


def _paths(before: Document, after: Document) -> Iterator[str]:
    for path, methods in before.items():
        if path not in after:
            yield f"the path {path} is gone"
            continue
        for method, operation in methods.items():
            if method not in after[path]:
                yield f"{method.upper()} {path} is gone"
            else:
                yield from _operation(f"{method.upper()} {path}", operation, after[path][method])


def _operation(name: str, before: Document, after: Document) -> Iterator[str]:
    parameters = {(each["in"], each["name"]): each for each in after["parameters"]}
    known = {(each["in"], each["name"]): each for each in before["parameters"]}
    for key, parameter in known.items():
        if key not in parameters:
            yield f"{name} no longer takes the {key[0]} parameter {key[1]}"
        else:
            yield from _schema(f"{name}, parameter {key[1]}", parameter["schema"], parameters[key]["schema"])
    for key, parameter in parameters.items():
        if parameter["required"] and not known.get(key, {}).get("required"):
            yield f"{name} now needs the {key[0]} parameter {key[1]}"
    if after.get("requestBody", {}).get("required") and not before.get("requestBody", {}).get("required"):
        yield f"{name} now needs a body"
    for kind in before.get("requestBody", {}).get("content", {}):
        if kind not in after.get("requestBody", {}).get("content", {}):
            yield f"{name} no longer takes {kind}"
    for status, response in before["responses"].items():
        if status not in after["responses"]:
            yield f"{name} no longer answers {status}"
        elif response.get("content") != after["responses"][status].get("content"):
            yield f"{name} answers {status} with something else"


def _schemas(before: Document, after: Document, described: Document) -> Iterator[str]:
    sent = _sent(described)
    for name, schema in before.items():
        if name not in after:
            yield f"the schema {name} is gone"
            continue
        yield from _schema(name, schema, after[name])
        new = set(after[name].get("required", [])) - set(schema.get("required", []))
        for field in sorted(new if name in sent else ()):
            yield f"{name} now needs the field {field}"


def _schema(name: str, before: Document, after: Document) -> Iterator[str]:
    if before.get("type") != after.get("type") or before.get("$ref") != after.get("$ref"):
        yield f"{name} has another type"
    values = _values(after)
    for value in _values(before) or []:
        if values is not None and value not in values:
            yield f"{name} no longer takes or gives {value!r}"
    for field, kind in before.get("properties", {}).items():
        if field not in after.get("properties", {}):
            yield f"{name} no longer has the field {field}"
        else:
            yield from _schema(f"{name}.{field}", kind, after["properties"][field])
    if "items" in before:
        yield from _schema(f"{name}[]", before["items"], after.get("items", {}))
    kept = after.get("anyOf", [])
    for position, kind in enumerate(before.get("anyOf", [])):
        if not any(not list(_schema("", kind, other)) for other in kept):
            yield f"{name} no longer may be its alternative {position + 1}"


def _values(schema: Document) -> list[Any] | None:
    """The values it allows; None means any."""
    found: list[Any] | None = [schema["const"]] if "const" in schema else schema.get("enum")
    return found


def _sent(described: Document) -> set[str]:
    """The schemas that clients send, with all that these are made of."""
    bodies = [
        operation["requestBody"]["content"]
        for methods in described["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    ]
    found: set[str] = set()
    waiting = list(_references(bodies))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _references(_all_schemas(described)[name])
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rpartition("/")[2]
        for entry in value.values():
            yield from _references(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _references(entry)


def main() -> None:
    described = generated()
    for change in breaking(committed(), described) if OPENAPI.exists() else []:
        sys.stderr.write(f"breaks clients: {change}\n")
    OPENAPI.write_text(text_of(described), "utf-8")
    PROBLEMS.write_text(problem_pages.manual(), "utf-8")


if __name__ == "__main__":
    main()
