"""What the status of an answer means for the run. No I/O.

A status that is named counts before its class; what neither list names has its default. `success` replaces its
default, all 2xx; `retry` and `no_retry` change the default of single statuses.
"""

from __future__ import annotations

import re
from typing import Literal

from detent.domain.job import HttpTarget, TargetStatuses
from detent.domain.target_url import TargetError

StatusVerdict = Literal["success", "retry", "no_retry", "gone"]

GONE = 410
RETRIED = frozenset({408, 425, 429})
_CLASS = re.compile("[2-5]xx")
_POINTER = "/target/statuses"


def verdict_of(target: HttpTarget, status: int) -> StatusVerdict:
    statuses = target.statuses
    if isinstance(statuses, TargetStatuses):
        for wanted in (status, f"{status // 100}xx"):
            for name, patterns in _lists(statuses).items():
                if wanted in patterns:
                    # That no 4xx is retried is the default, which says nothing about this one.
                    return "gone" if (status, name, wanted) == (GONE, "no_retry", "4xx") else name
        if statuses.success is not None and 200 <= status <= 299:
            return "no_retry"
    if 200 <= status <= 299:
        return "success"
    if status == GONE:
        return "gone"
    return "retry" if status in RETRIED or 500 <= status <= 599 else "no_retry"


def check_statuses(statuses: TargetStatuses) -> None:
    """Refuse a status with two meanings, and lists that leave no way to succeed."""
    if statuses.success is None and not statuses.retry and not statuses.no_retry:
        raise TargetError(_POINTER, "statuses is empty; give success, retry or no_retry, or remove it.")
    if statuses.success is not None and not statuses.success:
        raise TargetError(f"{_POINTER}/success", "No status is a success; name one, such as 200 or 2xx.")
    seen: dict[int | str, str] = {}
    for name, patterns in _lists(statuses).items():
        for pattern in patterns:
            if isinstance(pattern, str) and not _CLASS.fullmatch(pattern):
                raise TargetError(
                    f"{_POINTER}/{name}", f"{pattern!r} is not a class of statuses; write 2xx, 3xx, 4xx or 5xx."
                )
            if pattern in seen:
                where = f"twice in {name}" if seen[pattern] == name else f"in {seen[pattern]} and in {name}"
                raise TargetError(f"{_POINTER}/{name}", f"The status {pattern} is {where}; name it once.")
            seen[pattern] = name


def _lists(statuses: TargetStatuses) -> dict[Literal["success", "retry", "no_retry"], list[int | str]]:
    return {
        "success": _lowered(statuses.success or []),
        "retry": _lowered(statuses.retry),
        "no_retry": _lowered(statuses.no_retry),
    }


def _lowered(patterns: list[int | str]) -> list[int | str]:
    return [pattern.lower() if isinstance(pattern, str) else pattern for pattern in patterns]
