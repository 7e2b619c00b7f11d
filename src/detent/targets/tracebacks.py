"""The traceback of an exception as text: with its cause, its context, its notes and the members of a group.

It shows lines of source code and no values of variables. Frames of detent that called the handler are left out. As in
`exceptions.py`, user code may run here, and nothing may raise.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

from detent.domain.masking import Mask
from detent.targets.text import storable_text

LONGEST_TRACEBACK = 16_000
_HEAD = 5_000
_TAIL = LONGEST_TRACEBACK - _HEAD
_OURS = str(Path(__file__).parents[1])


def traceback_of(error: BaseException, mask: Mask | None = None) -> str | None:
    """None: it has none, or cannot be read. Masked before it is shortened, so that no secret is cut in two."""
    try:
        parts = traceback.TracebackException(type(error), error, _of_user(error.__traceback__), compact=True)
        text = storable_text("".join(parts.format())).rstrip("\n")
    except BaseException:
        return None
    return shortened_traceback(text, mask)


def _of_user(trace: TracebackType | None) -> TracebackType | None:
    """From the first frame on that is not of detent; all of them if there is no other."""
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_OURS):
        found = found.tb_next
    return trace if found is None else found


def shortened_traceback(text: str, mask: Mask | None) -> str:
    """The beginning and the end of whole lines. The end has the exception that was raised last."""
    text = text if mask is None else mask.text(text)
    if len(text) <= LONGEST_TRACEBACK:
        return text
    head = text[: text.rfind("\n", 0, _HEAD) + 1 or _HEAD]
    start = text.find("\n", len(text) - _TAIL) + 1 or len(text) - _TAIL
    if start < len(head):
        start = len(text) - _TAIL
    return f"{head}[… {start - len(head)} characters left out …]\n{text[start:]}"
