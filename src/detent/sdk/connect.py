"""Which cluster an app enqueues into, and the gateway to it."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from detent.errors import UsageError
from detent.sdk.portal import portal

if TYPE_CHECKING:
    from detent.sdk.gateway import Gateway

SCHEMA = "detent"
CLOSE_SECONDS = 2.0
_opened: WeakSet[Place] = WeakSet()


class NodeDatabase(NamedTuple):
    url: str
    schema: str
    pooled: bool


class Place:
    """Where an app enqueues: what it was given, else what the environment says."""

    def __init__(self, url: str | None, key: str | None, tenant: str) -> None:
        if url is not None and not url.startswith(("http://", "https://", "postgresql://", "postgres://")):
            scheme, separator, _ = url.partition("://")  # what follows may have a password
            shown = f"{scheme}{separator}…" if separator else "…"
            raise UsageError(
                f"url={shown!r} is no address of a cluster: give http(s)://… for the API, or postgresql://… for the "
                "database."
            )
        self.url = url
        self.key = key
        self.tenant = tenant
        self.node: NodeDatabase | None = None
        """The database of the node that this app runs in."""
        self.opened: tuple[int, Gateway] | None = None

    @property
    def schema(self) -> str:
        """The schema of detent in the database."""
        if self.node is not None:
            return self.node.schema
        return os.environ.get("DETENT_DATABASE_SCHEMA") or SCHEMA

    @property
    def address(self) -> str | None:
        """None: the server on this machine."""
        return self.url or os.environ.get("DETENT_API_URL") or os.environ.get("DETENT_DATABASE_URL")

    def enter(self, node: NodeDatabase | None) -> None:
        """The app runs in this node from now on, or in none. An address of its own takes precedence."""
        self.node = node
        if self.url is None and self.opened is not None:
            portal.block(self.close, CLOSE_SECONDS)

    async def close(self) -> None:
        opened, self.opened = self.opened, None
        if opened is not None and opened[0] == os.getpid():
            await opened[1].close()


def open_gateway(place: Place) -> Gateway:
    """The gateway of this process: a fork must not use its parent's connections."""
    if place.opened is None or place.opened[0] != os.getpid():
        place.opened = os.getpid(), _new_gateway(place)
        _opened.add(place)
    return place.opened[1]


@atexit.register
def _close_all() -> None:
    """At the end of a program: connections that are only dropped are reported as left open."""
    for place in list(_opened):
        with suppress(Exception):
            portal.block(place.close, CLOSE_SECONDS)


def _new_gateway(place: Place) -> Gateway:
    if place.url is None and place.node is not None:
        from detent.sdk.database_gateway import NodeGateway

        return NodeGateway(place.node.url, place.node.schema, place.tenant, pooled=place.node.pooled)
    address = place.address
    if address is not None and address.startswith("postgres"):
        from detent.sdk.database_gateway import DatabaseGateway

        pooled = os.environ.get("DETENT_DATABASE_POOLER") == "transaction"
        return DatabaseGateway(address, place.schema, place.tenant, pooled=pooled)
    from detent.sdk.http_gateway import HttpGateway

    return HttpGateway(address, place.key)
