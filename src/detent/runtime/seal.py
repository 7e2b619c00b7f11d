"""Encryption with a token that the database does not have: what is sealed opens only while its holder is there."""

from __future__ import annotations

import os

NONCE_BYTES = 12
_PURPOSE = b"detent session"


class BrokenSeal(Exception):  # noqa: N818 - it says what is broken
    """The text was sealed with another token, or was changed."""


def seal(token: str, text: str) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(_key(token)).encrypt(nonce, text.encode(), _PURPOSE)


def unseal(token: str, sealed: bytes) -> str:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(_key(token)).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _PURPOSE).decode()
    except (InvalidTag, ValueError) as error:
        raise BrokenSeal from error


def _key(token: str) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(token.encode())
