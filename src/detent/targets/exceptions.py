"""From an exception of a handler to a failed attempt.

Everything here runs user code again (`__str__`, properties, `repr`), which may raise anything. The handler has been
called by then, so nothing here may raise: text that cannot be read is described as such.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from math import inf, isnan
from numbers import Real
from typing import Any, cast

from msgspec.structs import replace

from detent.domain.masking import Mask
from detent.domain.run import Cancelled, Failed
from detent.errors import Discard, NotRetryable, Retry
from detent.targets.text import storable_text
from detent.targets.tracebacks import traceback_of

LONGEST_ERROR = 8000
LONGEST_WAIT = 31_536_000.0
LONGEST_VALUE = 200
# How many exceptions of a group are described.
MAX_MEMBERS = 10


def failure_of(error: BaseException, mask: Mask | None = None) -> Failed:
    """The failed attempt that an exception stands for. `mask` hides secrets in its traceback."""
    return replace(_failure(error), traceback=traceback_of(error, mask))


def _failure(error: BaseException) -> Failed:
    kind = type(error)  # not __class__, which may be anything
    if issubclass(kind, asyncio.CancelledError):
        text = _text(error)
        return Failed(f"The handler cancelled itself{f': {text}' if text else '.'}", kinds=kinds_of(error))
    text = describe(error)
    if issubclass(kind, NotRetryable):
        return Failed(text, retryable=False)
    if not issubclass(kind, Retry):
        return Failed(text, kinds=kinds_of(error))
    wait, mistake = _asked_wait(error)
    return Failed(f"{text} ({mistake})" if mistake else text, retry_after=wait, kinds=kinds_of(error))


def discarded(error: BaseException) -> Cancelled | None:
    """The end of the run, if its handler raised Discard; None for any other exception."""
    if not issubclass(type(error), Discard):
        return None
    text = _text(error)
    return Cancelled(f"discarded: {text}" if text else "discarded")


def kinds_of(error: BaseException | type[BaseException]) -> tuple[str, ...]:
    """The names of its class and base classes, each with and without its module."""
    own = _class_of(error)
    try:
        kinds = [kind for kind in type.mro(own) if issubclass(kind, BaseException)]
        names = [name for kind in kinds for name in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}")]
        return tuple(map(_plain, names))
    except BaseException:
        return (_name(own),)


def describe(error: BaseException) -> str:
    """The name and the text of the exception, in a form that can be stored."""
    text = _text(error)
    return _plain(f"{_name(error)}: {text}" if text else _name(error))


def _text(error: BaseException) -> str:
    try:
        said = _plain(str(error))
    except BaseException as broken:
        return f"its text cannot be read: {_name(broken)}{_reason(broken)}"
    if not issubclass(type(error), BaseExceptionGroup):
        return said
    try:
        members = [describe(member) for _, member in zip(range(MAX_MEMBERS), _members(error), strict=False)]
    except BaseException:
        return said
    return _plain(f"{said}: {'; '.join(members)}")


def _reason(broken: BaseException) -> str:
    """The text of an exception that a `__str__` raised. It may fail in the same way, so it is tried once."""
    try:
        return f": {_plain(str(broken))}"
    except BaseException:
        return ""


def _members(group: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group that are not groups. Without recursion, because groups may be nested deeply."""
    left = [group]
    while left:
        error = left.pop()
        if isinstance(error, BaseExceptionGroup):
            left += reversed(error.exceptions)
        else:
            yield error


def _class_of(error: BaseException | type[BaseException]) -> type[BaseException]:
    """`isinstance` asks the object itself, whose `__class__` may raise."""
    return cast("type[BaseException]", error if issubclass(type(error), type) else type(error))


def _name(error: BaseException | type[BaseException]) -> str:
    return type.__dict__["__name__"].__get__(_class_of(error))  # type: ignore[no-any-return] # a metaclass may hide it


def _plain(text: str) -> str:
    """A plain `str` within the limit: a subclass may run any code when it is formatted."""
    return storable_text(str.__getitem__(text, slice(LONGEST_ERROR)))


def _asked_wait(error: Any) -> tuple[float | None, str]:
    """The seconds that a Retry requests; or None, and what is wrong with them, if anything is."""
    try:
        asked = error.after
        if asked is None:
            return None, ""
        seconds = _seconds(asked)
        if seconds is not None:
            return min(max(seconds, 0.0), LONGEST_WAIT), ""
        return None, f"after is {_plain(repr(asked))[:LONGEST_VALUE]}: give a number of seconds or a timedelta"
    except BaseException as broken:
        return None, f"after cannot be read: {describe(broken)[:LONGEST_VALUE]}"


def _seconds(asked: object) -> float | None:
    if isinstance(asked, timedelta):
        return asked.total_seconds()
    if not isinstance(asked, Real | Decimal):
        return None
    try:
        seconds = float(asked)
    except OverflowError:  # an integer past any float, or one far below zero
        return inf if str(asked)[0] != "-" else 0.0
    return None if isnan(seconds) else seconds
