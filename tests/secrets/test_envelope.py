"""Encryption of secrets: what opens, and what must not."""

from __future__ import annotations

import pytest

from detent.domain.secret_keys import key_id, read_master_keys
from detent.domain.webhooks import read_signing_key
from detent.runtime.envelope import (
    Envelope,
    MasterKeys,
    SecretPlace,
    SecretKeyError,
    generate_master_key,
    generate_signing_key,
)

PLACE = SecretPlace(1, "payments", 3)
VALUE = "sk_live_4eC39HqLyjWD"


@pytest.fixture
def keys() -> MasterKeys:
    return MasterKeys(read_master_keys(generate_master_key()))


def test_a_value_opens_at_its_place(keys: MasterKeys) -> None:
    assert keys.open(PLACE, keys.seal(PLACE, VALUE)) == VALUE


@pytest.mark.parametrize(
    "place", [SecretPlace(2, "payments", 3), SecretPlace(1, "other", 3), SecretPlace(1, "payments", 4)]
)
def test_an_envelope_opens_at_no_other_place(keys: MasterKeys, place: SecretPlace) -> None:
    with pytest.raises(SecretKeyError, match="was changed"):
        keys.open(place, keys.seal(PLACE, VALUE))
    with pytest.raises(SecretKeyError, match="was changed"):
        keys.rewrap(place, keys.seal(PLACE, VALUE))


@pytest.mark.parametrize("part", ["wrapped", "nonce", "ciphertext"])
def test_a_changed_envelope_does_not_open(keys: MasterKeys, part: str) -> None:
    sealed = keys.seal(PLACE, VALUE)
    changed = bytearray(getattr(sealed, part))
    changed[-1] ^= 1
    with pytest.raises(SecretKeyError):
        keys.open(PLACE, Envelope(**sealed._asdict() | {part: bytes(changed)}))
    with pytest.raises(SecretKeyError):
        keys.open(PLACE, Envelope(**sealed._asdict() | {part: b""}))


def test_the_same_value_is_never_encrypted_alike(keys: MasterKeys) -> None:
    sealed = [keys.seal(PLACE, VALUE) for _ in range(50)]
    for part in ("wrapped", "nonce", "ciphertext"):
        assert len({getattr(one, part) for one in sealed}) == 50
    assert all(VALUE.encode() not in one.wrapped + one.nonce + one.ciphertext for one in sealed)


def test_a_new_master_key_takes_over_the_data_key_alone() -> None:
    old, new = generate_master_key(), generate_master_key()
    sealed = MasterKeys(read_master_keys(old)).seal(PLACE, VALUE)
    both = MasterKeys(read_master_keys(f"{new},\n {old}"))
    moved = both.rewrap(PLACE, sealed)
    assert (moved.nonce, moved.ciphertext) == (sealed.nonce, sealed.ciphertext)
    assert moved.key_id == both.newest == key_id(read_master_keys(new)[0])
    assert MasterKeys(read_master_keys(new)).open(PLACE, moved) == VALUE
    with pytest.raises(SecretKeyError, match="is not set here"):
        MasterKeys(read_master_keys(new)).open(PLACE, sealed)


def test_without_a_key_nothing_is_sealed() -> None:
    with pytest.raises(SecretKeyError, match="no DETENT_SECRET_KEY"):
        MasterKeys().seal(PLACE, VALUE)


WHOLE_KEY = "A" * 43 + "="


@pytest.mark.parametrize("text", ["short", "AAAA", WHOLE_KEY[:-4], f"{WHOLE_KEY};x"])
def test_a_wrong_master_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not"):
        read_master_keys(text)


def test_a_generated_signing_key_can_sign() -> None:
    key = read_signing_key(generate_signing_key())
    assert key is not None
    assert len(key) == 32


def test_nothing_shows_a_key_when_it_is_printed() -> None:
    text = generate_master_key()
    keys = MasterKeys(read_master_keys(text))
    assert text not in repr(keys)
    assert isinstance(keys.seal(PLACE, VALUE), Envelope)
