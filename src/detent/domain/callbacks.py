"""Completion callbacks: the credential that lets a target report the end of one attempt of one run. No I/O.

A credential is bound to the run, its tenant and the token of the attempt by a MAC under a key of the cluster. It is
checked without a look-up, and it is worth nothing for any other run, attempt or request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Iterable
from typing import NamedTuple

PREFIX = "dtc_"
KEY_BYTES = 32
WORKER_PREFIX = "callback:"
"""Begins the names of the workers that hold accepted runs. No worker that pulls may have such a name."""

URL_HEADER = "Detent-Callback-Url"
TOKEN_HEADER = "Detent-Callback-Token"  # noqa: S105 - the name of a header

_FACTS = struct.Struct(">iQ")


class CallbackTicket(NamedTuple):
    """What a target gets to report with: the address of its run, and the credential."""

    url: str
    credential: str

    def __repr__(self) -> str:
        return f"CallbackTicket({self.url!r})"


class ProvenCallback(NamedTuple):
    """What a valid credential proves: whose run it is for, and which token it has."""

    tenant: int
    token: int


def credential_of(key: bytes, run_id: str, tenant: int, token: int) -> str:
    """The credential of this attempt; `run_id` is written as detent writes it."""
    facts = _FACTS.pack(tenant, token)
    return PREFIX + _text(facts + _mac(key, run_id, facts))


def is_credential(text: str) -> bool:
    """Whether this text is meant as a credential of a callback, valid or not."""
    return text.startswith(PREFIX)


def proven_by(keys: Iterable[bytes], run_id: str, text: str) -> ProvenCallback | None:
    """None: it is not a credential for this run. The time does not depend on how much of it is right."""
    encoded = text.removeprefix(PREFIX)
    try:
        data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    # Base64 can spell the last bits of the same bytes in several ways: only ours is one.
    if len(data) != _FACTS.size + hashlib.sha256().digest_size or _text(data) != encoded:
        return None
    facts, mac = data[: _FACTS.size], data[_FACTS.size :]
    matches = [hmac.compare_digest(_mac(key, run_id, facts), mac) for key in keys]
    return ProvenCallback(*_FACTS.unpack(facts)) if any(matches) else None


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _mac(key: bytes, run_id: str, facts: bytes) -> bytes:
    return hmac.new(key, b"detent callback\0" + run_id.encode() + b"\0" + facts, hashlib.sha256).digest()
