"""The answer of /readyz: checks, and the status that follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct


class Check(Struct, frozen=True):
    """One check and its finding. A check that is not `needed` informs people: the process is ready without it."""

    ok: bool
    why: str
    needed: bool = True


class ReadinessCheck(Struct, frozen=True, omit_defaults=True):
    """`checks` is present with ?verbose."""

    status: Literal["ready", "not ready", "draining"]
    checks: Mapping[str, Check] | None = None


def summary(checks: Mapping[str, Check], verbose: bool) -> tuple[ReadinessCheck, int]:
    """The answer and its status: 503 while a needed check fails."""
    shown = checks if verbose else None
    missing = [name for name, check in checks.items() if check.needed and not check.ok]
    if not missing:
        return ReadinessCheck("ready", shown), 200
    return ReadinessCheck("draining" if missing == [DRAINING] else "not ready", shown), 503


DRAINING = "not draining"
