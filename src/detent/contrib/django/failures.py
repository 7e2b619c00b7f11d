"""The errors of a result: the class of the exception and the text of its traceback.

detent keeps text. Python ends a traceback with the class of the exception and its module, so the class can be read
there.
"""

from __future__ import annotations

import builtins
import re
from typing import Any

from detent.contrib.django.compat import TaskError

_HEADER = re.compile(r"^(?:Exception Group )?Traceback \(most recent call last\):$", re.MULTILINE)
_CLASS = re.compile(r"^([^\W\d][\w.<>]*)(?::|$)", re.MULTILINE)
_OURS = "detent.contrib.django.exceptions"


def error_of(outcome: str, error: str | None, traceback: str | None) -> Any:
    text = error or outcome
    if traceback:
        traceback = traceback.rstrip("\n") + "\n"  # as Python ends it
    if outcome != "failed":
        return TaskError(exception_class_path=f"{_OURS}.AttemptLost", traceback=traceback or text)
    return TaskError(exception_class_path=class_path(traceback, text), traceback=traceback or text)


def reason_error(status: str, reason: str | None) -> Any:
    return TaskError(exception_class_path=f"{_OURS}.TaskCancelled", traceback=reason or status)


def class_path(traceback: str | None, error: str) -> str:
    """Of the last traceback in the text: the others are of the causes."""
    name = _last_class(traceback) if traceback else None
    name = name or _first_class(error) or "Exception"
    if "." in name:
        return name
    return f"builtins.{name}" if hasattr(builtins, name) else name


def _last_class(traceback: str) -> str | None:
    headers = list(_HEADER.finditer(traceback))
    if not headers:
        return None
    found = _CLASS.search(traceback, headers[-1].end())
    return found[1] if found else None


def _first_class(error: str) -> str | None:
    found = _CLASS.match(error)
    return found[1] if found else None
