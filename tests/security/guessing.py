"""Keys that are not valid, as an attacker who guesses sends them."""

from __future__ import annotations

import secrets

LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def wrong_key(key_id: str = "") -> str:
    """A key that has the form of one."""
    made = key_id or "".join(secrets.choice(LETTERS) for _ in range(10))
    return f"dtn_{made}_{''.join(secrets.choice(LETTERS) for _ in range(52))}"
