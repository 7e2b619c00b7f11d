"""Verbs about API keys."""

from __future__ import annotations

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, given, no_content, reader
from detent.client.transport import PAGE_SIZE, segment
from detent.contract.key import ApiKey, KeyScope, NewApiKey
from detent.contract.page import Page


def create_key(
    scope: KeyScope, *, name: str | None = None, tenant: str | None = None, expires_in_seconds: int | None = None
) -> Request[NewApiKey]:
    """Create a key. Only this answer contains its text, `key`."""
    body = given(scope=scope, name=name, tenant=tenant, expires_in_seconds=expires_in_seconds)
    return Request("POST", f"{PREFIX}/keys", reader(NewApiKey), body=body)


def list_keys(*, tenant: str | None = None) -> Request[Page[ApiKey]]:
    """List the keys of a tenant, without their secrets."""
    return Request("GET", f"{PREFIX}/keys", reader(Page[ApiKey]), query={"tenant": tenant, "limit": PAGE_SIZE})


def revoke_key(key: str, *, tenant: str | None = None) -> Request[None]:
    """Revoke a key, by its id."""
    return Request("DELETE", f"{PREFIX}/keys/{segment(key)}", no_content, query={"tenant": tenant})


class KeyVerbs:
    """The verbs of the clients about API keys."""

    create_key = Operation(create_key)
    list_keys = Listing(list_keys)
    revoke_key = Operation(revoke_key)
