"""What the audit log records of a change, and who makes it. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from detent.domain.identity import RunKey, run_id

# `key`: an API key or the session of one. `user`: a person who logged in at the OpenID provider. `local`: this machine,
# while the cluster has no key. `command`: a command that writes to the database directly. `app`: jobs that a Python app
# declares. `detent`: a node, by itself. `unknown`: a request without a valid key.
ActorKind = Literal["key", "user", "local", "command", "app", "detent", "unknown"]

Facts = Mapping[str, Any]

HIDDEN = "(hidden)"
"""Instead of a value that may be a secret."""

MAX_LISTED = 1_000
"""How many objects of a change for many are listed by their ids; beyond that only their number is recorded."""

LONGEST_TEXT = 2_000


class Actor(NamedTuple):
    """Who makes a change. `address` is where the request came from, `request_id` the trace id of its answer and log."""

    kind: ActorKind
    id: str | None = None
    name: str | None = None
    address: str | None = None
    request_id: str | None = None


ITSELF = Actor("detent", name="detent")


class NewEvent(NamedTuple):
    """One change. `action` is `<kind>.<verb>`; `before` and `after` have only what changed, and never a secret.
    `tenant` is the tenant that the change concerns; None: the cluster, or an unknown caller."""

    action: str
    tenant: int | None
    kind: str
    id: str | None = None
    name: str | None = None
    before: Facts | None = None
    after: Facts | None = None


def shortened(value: Any) -> Any:
    """The value with every long text cut, so that an event stays small."""
    match value:
        case str() if len(value) > LONGEST_TEXT:
            return f"{value[:LONGEST_TEXT]}… ({len(value)} characters)"
        case Mapping():
            return {name: shortened(inner) for name, inner in value.items()}
        case list() | tuple():
            return [shortened(inner) for inner in value]
        case _:
            return value


def changed(before: Facts, after: Facts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of the values that differ, as they were and as they are."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: before.get(name) for name in names}, {name: after.get(name) for name in names}


def listed(ids: list[str]) -> dict[str, Any]:
    """How many objects a change for many has, and which."""
    return {"count": len(ids), "ids": ids[:MAX_LISTED]}


def of_runs(action: str, tenant: int, runs: Sequence[RunKey], asked: Facts | None = None) -> NewEvent:
    """A change of one run, or one event for many: `asked` has what they were found by."""
    ids = [str(run_id(key)) for key in runs]
    if len(ids) == 1:
        return NewEvent(action, tenant, "run", ids[0], after=asked or None)
    return NewEvent(action, tenant, "runs", after={**(asked or {}), **listed(ids)})
