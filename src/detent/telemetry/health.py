"""What a process says of itself when it is asked whether it is ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct


class Check(Struct, frozen=True):
    """One thing that was looked at, and what was seen. One that is not `needed` is for people to know: work may be sent
    all the same."""

    ok: bool
    why: str
    needed: bool = True


class ReadinessCheck(Struct, frozen=True, omit_defaults=True):
    """`checks` is there when asked for with ?verbose."""

    status: Literal["ready", "not ready", "draining"]
    checks: Mapping[str, Check] | None = None


def summary(checks: Mapping[str, Check], verbose: bool) -> tuple[ReadinessCheck, int]:
    """The answer and its status: 503 as long as anything is missing that is needed."""
    shown = checks if verbose else None
    missing = [name for name, check in checks.items() if check.needed and not check.ok]
    if not missing:
        return ReadinessCheck("ready", shown), 200
    return ReadinessCheck("draining" if missing == [DRAINING] else "not ready", shown), 503


DRAINING = "not draining"
