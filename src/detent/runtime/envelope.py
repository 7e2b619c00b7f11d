"""Encryption of secrets: an envelope.

Each version of a secret is encrypted with its own data key, and the data key with a master key of the operator. For a
new master key only the data keys are encrypted again, not the values. Both are bound to tenant, name and version of
their row: moved to another row, neither can be decrypted.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from detent.domain.secret_keys import KEY_BYTES, key_id
from detent.domain.webhooks import PREFIX as SIGNING_PREFIX

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
SIGNING_KEY_BYTES = 32


class SecretKeyError(Exception):
    """A secret cannot be opened: its master key is not here, or the row was changed."""


class SecretPlace(NamedTuple):
    """The row that an envelope belongs to."""

    tenant: int
    name: str
    version: int

    def bound(self, purpose: str) -> bytes:
        # The name has no line break, so no two places are written alike.
        return f"detent {purpose}\n{self.tenant}\n{self.version}\n{self.name}".encode()


class Envelope(NamedTuple):
    """`wrapped` is the data key under the master key `key_id`, after its nonce."""

    key_id: str
    wrapped: bytes
    nonce: bytes
    ciphertext: bytes


class MasterKeys:
    """The operator's keys, the newest first: it encrypts, all of them decrypt."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = {key_id(key): key for key in keys}
        self.newest = next(iter(self._keys), None)

    def __repr__(self) -> str:
        return f"MasterKeys({', '.join(self._keys)})"

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def missing(self, used: Iterable[str]) -> list[str]:
        return [one for one in used if one not in self._keys]

    def seal(self, place: SecretPlace, value: str) -> Envelope:
        newest = self._newest()
        data_key, nonce = os.urandom(KEY_BYTES), os.urandom(NONCE_BYTES)
        ciphertext = _cipher(data_key).encrypt(nonce, value.encode(), place.bound("value"))
        return Envelope(newest, _wrap(self._keys[newest], place, data_key), nonce, ciphertext)

    def open(self, place: SecretPlace, envelope: Envelope) -> str:
        """The value; or SecretKeyError."""
        from cryptography.exceptions import InvalidTag

        try:
            data_key = self._data_key(place, envelope)
            return _cipher(data_key).decrypt(envelope.nonce, envelope.ciphertext, place.bound("value")).decode()
        except (InvalidTag, ValueError):
            raise SecretKeyError("its row in the database was changed, or belongs to another secret") from None

    def rewrap(self, place: SecretPlace, envelope: Envelope) -> Envelope:
        """The same envelope under the newest key; the value stays encrypted."""
        from cryptography.exceptions import InvalidTag

        newest = self._newest()
        try:
            data_key = self._data_key(place, envelope)
        except (InvalidTag, ValueError):
            raise SecretKeyError("its row in the database was changed, or belongs to another secret") from None
        return envelope._replace(key_id=newest, wrapped=_wrap(self._keys[newest], place, data_key))

    def _newest(self) -> str:
        if self.newest is None:
            raise SecretKeyError("no DETENT_SECRET_KEY is set")
        return self.newest

    def _data_key(self, place: SecretPlace, envelope: Envelope) -> bytes:
        key = self._keys.get(envelope.key_id)
        if key is None:
            raise SecretKeyError(f"the secret key {envelope.key_id}, which encrypts it, is not set here")
        nonce, wrapped = envelope.wrapped[:NONCE_BYTES], envelope.wrapped[NONCE_BYTES:]
        return bytes(_cipher(key).decrypt(nonce, wrapped, place.bound("key")))


def generate_master_key() -> str:
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def generate_signing_key() -> str:
    return SIGNING_PREFIX + base64.b64encode(os.urandom(SIGNING_KEY_BYTES)).decode()


def _wrap(master: bytes, place: SecretPlace, data_key: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(master).encrypt(nonce, data_key, place.bound("key"))


def _cipher(key: bytes) -> AESGCM:
    """Imported on first use, because most commands and many nodes never encrypt."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
