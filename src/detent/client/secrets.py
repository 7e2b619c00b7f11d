"""Verbs about secrets. Values go in and never come out."""

from __future__ import annotations

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, no_content, reader
from detent.client.transport import segment
from detent.contract.page import Page
from detent.contract.secret import RewrappedSecrets, Secret


def list_secrets() -> Request[Page[Secret]]:
    """List the secrets of your tenant, without their values."""
    return Request("GET", f"{PREFIX}/secrets", reader(Page[Secret]))


def get_secret(name: str) -> Request[Secret]:
    """Get what is known about a secret; never its value."""
    return Request("GET", f"{PREFIX}/secrets/{segment(name)}", reader(Secret))


def set_secret(name: str, value: str) -> Request[Secret]:
    """Create a secret, or replace its value."""
    return Request("PUT", f"{PREFIX}/secrets/{segment(name)}", reader(Secret), body={"value": value})


def rotate_secret(name: str, value: str, *, keep_seconds: float = 0) -> Request[Secret]:
    """Give a secret a new value; calls are signed with the former one, too, for `keep_seconds`."""
    body = {"value": value, "keep_seconds": keep_seconds}
    return Request("POST", f"{PREFIX}/secrets/{segment(name)}/rotate", reader(Secret), body=body)


def delete_secret(name: str) -> Request[None]:
    """Delete a secret that no job refers to."""
    return Request("DELETE", f"{PREFIX}/secrets/{segment(name)}", no_content)


def rotate_secret_key() -> Request[RewrappedSecrets]:
    """Put some of the secrets under the newest secret key of the server; repeat until none remains."""
    return Request("POST", f"{PREFIX}/secret-keys/rotate", reader(RewrappedSecrets))


class SecretVerbs:
    """The verbs of the clients about secrets."""

    list_secrets = Listing(list_secrets)
    get_secret = Operation(get_secret)
    set_secret = Operation(set_secret)
    rotate_secret = Operation(rotate_secret)
    delete_secret = Operation(delete_secret)
    rotate_secret_key = Operation(rotate_secret_key)
