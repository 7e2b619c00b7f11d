"""Events of the audit log in the public API."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from msgspec import Struct

from detent.contract.page import Instant
from detent.domain.audit_chain import ChainEnds, ChainLink
from detent.domain.audit_event import ActorKind


class EventActor(Struct, frozen=True, kw_only=True):
    """Who made the change: `id` and `name` of the key, the app, or the command."""

    kind: ActorKind
    id: str | None
    name: str | None


class EventObject(Struct, frozen=True, kw_only=True):
    """What was changed. It may not exist any more."""

    kind: str
    id: str | None
    name: str | None


class AuditEvent(Struct, frozen=True, kw_only=True):
    """One change, login or refusal. `before` and `after` have only what changed, and `(hidden)` instead of values that
    may be secret. `tenant` is the one it concerns, null for the cluster. `position`, `hash` and `previous_hash` are its
    place in the chain of hashes, null for the few seconds until it is chained."""

    id: int
    at: Instant
    tenant: str | None
    tenant_number: int | None
    actor: EventActor
    address: str | None
    action: str
    object: EventObject
    before: Any
    after: Any
    request_id: str | None
    position: int | None
    hash: str | None
    previous_hash: str | None

    @property
    def facts(self) -> list[Any]:
        """Everything that its hash covers, in a fixed order."""
        at = self.at.astimezone(UTC).isoformat(timespec="microseconds")
        actor, what = self.actor, self.object
        return [
            *(self.id, at, self.tenant_number, self.tenant, actor.kind, actor.id, actor.name, self.address),
            *(self.action, what.kind, what.id, what.name, self.before, self.after, self.request_id),
        ]

    @property
    def link(self) -> ChainLink | None:
        """None: it is not chained yet."""
        if self.position is None or self.hash is None or self.previous_hash is None:
            return None
        return ChainLink(
            self.position, self.id, self.facts, bytes.fromhex(self.previous_hash), bytes.fromhex(self.hash)
        )


class AuditChain(Struct, frozen=True, kw_only=True):
    """Both ends of the chain: its newest event, and the last one that was removed after `audit_days`. `unchained`
    events wait to be chained, the oldest of them for `unchained_seconds`."""

    head: int
    head_hash: str
    purged: int
    purged_hash: str
    unchained: int
    unchained_seconds: float

    @property
    def ends(self) -> ChainEnds:
        return ChainEnds(self.purged, bytes.fromhex(self.purged_hash), self.head, bytes.fromhex(self.head_hash))
