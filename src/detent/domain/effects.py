"""What a handler has done already: steps of its run, and effects that happen once per key. No I/O."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, NamedTuple

from detent.errors import UsageError

LONGEST_NAME = 200
MAX_STEP_BYTES = 65_536
MAX_STEPS = 1_000
KEPT_DAYS = 30
_LONGEST_KEEPING = timedelta(days=3650)

EffectScope = Literal["job", "tenant"]


class OnceKey(NamedTuple):
    """An effect that happens once: its key, whether all jobs of the tenant share it, how long it is remembered, the
    tenant, and the longest time that the attempt may take."""

    key: str
    shared: bool
    kept_for: timedelta
    tenant: int = 1
    timeout: timedelta = timedelta(minutes=5)


class NewStep(NamedTuple):
    """A step that has ended: its result as JSON, None: nothing, and how long it took."""

    name: str
    result: str | None
    took: timedelta


def once_key(
    key: str, scope: EffectScope, keep_for: float | timedelta, *, tenant: int, timeout_seconds: float
) -> OnceKey:
    """Raises UsageError."""
    _check_text("The key of run.once", key, "invoice-42")
    if scope not in ("job", "tenant"):
        raise UsageError(f"run.once got scope={scope!r}: give 'job' or 'tenant'.")
    return OnceKey(key, scope == "tenant", _kept_for(keep_for), tenant, timedelta(seconds=timeout_seconds))


def _kept_for(given: float | timedelta) -> timedelta:
    try:
        kept = given if isinstance(given, timedelta) else timedelta(seconds=given)
    except (TypeError, ValueError, OverflowError):
        kept = timedelta(0)
    if not timedelta(0) < kept <= _LONGEST_KEEPING:
        raise UsageError(f"run.once got keep_for={given!r}: give a timedelta or a number of seconds, up to ten years.")
    return kept


def check_step_name(name: str) -> None:
    """Raises UsageError."""
    _check_text("The name of a step", name, "charge")


def _check_text(what: str, text: object, example: str) -> None:
    if not isinstance(text, str) or not text or len(text) > LONGEST_NAME:
        raise UsageError(
            f"{what} is {_shown(text)}: give a text of 1 to {LONGEST_NAME} characters, such as {example!r}."
        )
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{what} is {_shown(text)}, which cannot be stored: give one such as {example!r}.")


def _shown(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
