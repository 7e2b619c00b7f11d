"""Signatures as Standard Webhooks defines them: with them the receiver verifies sender, content and age. No I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

PREFIX = "whsec_"
SHORTEST_KEY, LONGEST_KEY = 24, 64
KEY_FORM = f"{PREFIX} and {SHORTEST_KEY} to {LONGEST_KEY} bytes in base64"


class Signing(NamedTuple):
    """The keys that sign a call, the newest first, and the time of the attempt."""

    keys: tuple[bytes, ...]
    at: datetime

    def __repr__(self) -> str:
        return f"Signing({len(self.keys)} keys)"


def read_signing_key(text: str) -> bytes | None:
    """None: the text is not a key. The prefix may be left out."""
    try:
        key = base64.b64decode(text.strip().removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if SHORTEST_KEY <= len(key) <= LONGEST_KEY else None


def signed(message_id: str, at: datetime, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
    """The headers that identify and sign a message; without keys they only identify it."""
    seconds = str(int(at.timestamp()))
    headers = {"webhook-id": message_id, "webhook-timestamp": seconds}
    if keys:
        text = f"{message_id}.{seconds}.".encode() + body
        digests = [hmac.new(key, text, hashlib.sha256).digest() for key in keys]
        headers["webhook-signature"] = " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return headers
