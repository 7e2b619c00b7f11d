"""Text for targets and from targets: bytes from outside become text that PostgreSQL can store."""

from __future__ import annotations

import codecs
import re
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote

REPLACEMENT = "\ufffd"

_VISIBLE = re.compile(r"[!-$&-~]*")
_KEPT = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def storable(data: bytes, *, complete: bool = True) -> str:
    """UTF-8 with replacements, without NUL. Incomplete data may end inside a character, which is dropped."""
    if complete and data.isascii():  # nearly always; a decoder takes 0.5 µs to make
        return data.decode().replace("\0", REPLACEMENT)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data, complete).replace("\0", REPLACEMENT)


def storable_text(text: str) -> str:
    """Without what PostgreSQL refuses in text: NUL and lone surrogates."""
    if text.isascii() and "\0" not in text:  # nearly always
        return text
    return _UNSTORABLE.sub(REPLACEMENT, text)


def first_bytes(text: str, limit: int) -> str:
    """The beginning that fits: replacements are longer than what they replace."""
    return text if len(text) * 4 <= limit else text.encode()[:limit].decode(errors="ignore")


def last_bytes(text: str, limit: int) -> str:
    encoded = text.encode()
    return encoded[max(0, len(encoded) - limit) :].decode(errors="ignore")


def one_line(text: str, limit: int = 500) -> str:
    """For error sentences: no line breaks or control characters, at most `limit` characters."""
    line = _CONTROL.sub(" ", text).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def visible(text: str) -> str:
    """Percent-encode what is not visible ASCII, and the percent sign, so that it can be decoded again."""
    return text if _VISIBLE.fullmatch(text) else quote(text, safe=_KEPT)


@lru_cache(maxsize=1024)
def instant_text(instant: datetime) -> str:
    """RFC 3339 in UTC; milliseconds only when there are any. Cached, because runs that are due together share it, and
    formatting it was two thirds of the work on a call's headers (4.3 of 6.3 µs).
    """
    utc = instant.astimezone(UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="milliseconds" if utc.microsecond >= 1000 else "seconds") + "Z"
