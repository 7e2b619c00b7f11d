"""Master keys as operators write them, and how they are named. No I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

KEY_BYTES = 32
_SEPARATORS = re.compile(r"[\s,]+")


def read_master_keys(text: str | None) -> list[bytes]:
    """The keys of a setting, the newest first. Raises ValueError unless each is 32 bytes in base64."""
    return [_read_key(part) for part in _SEPARATORS.split(text or "") if part]


def _read_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
    if len(key) != KEY_BYTES:
        raise ValueError("not 32 bytes")
    return key


def key_id(key: bytes) -> str:
    """A name for a key that does not reveal the key."""
    return hashlib.sha256(b"detent secret key\n" + key).hexdigest()[:12]
