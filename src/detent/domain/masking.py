"""Masks the values of secrets in what comes back from a target. No I/O.

A value may come back as it was sent, inside JSON, in a URL, in base64 or in a Python repr. Text that was cut off may
end or begin inside a value: such a part is masked as well, from `SHORTEST_VALUE` characters on.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

from detent.domain.job import HttpTarget, Target, TopicTarget
from detent.domain.secret_ref import SHORTEST_VALUE
from detent.domain.sensitive import MASKED, literal_values
from detent.domain.webhooks import PREFIX

SHORTEST_LINE = 16
LONGEST_KEPT = 1_000
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9-]* +(\S+)")
# Nothing but base64 between the two, so one without an end hides no lines behind it, and many of them take no longer.
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]*+-----END CERTIFICATE-----")
_URL_SAFE = str.maketrans("+/", "-_")


def forms_of(value: str) -> tuple[str, ...]:
    """Every form of a value that is masked, the longest first, so that no shorter one leaves a part of a longer."""
    found = dict.fromkeys(form for part in _parts(value) for form in _spellings(part) if len(form) >= SHORTEST_VALUE)
    return tuple(sorted(found, key=len, reverse=True))


def _parts(value: str) -> Iterator[str]:
    """The value; without its scheme (`Bearer …`); and each long line of one with several, such as a private key. The
    lines of certificates are public, and a chain of them would make masking slow."""
    yield value
    yield value.strip()
    yield value.removeprefix(PREFIX)
    scheme = _SCHEME.fullmatch(value)
    if scheme:
        yield scheme[1]
    if "\n" in value.strip():
        yield from (
            line
            for line in map(str.strip, _CERTIFICATE.sub("", value).splitlines())
            if len(line) >= SHORTEST_LINE and line[0] != "-"
        )


def _spellings(text: str) -> Iterator[str]:
    yield text
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    yield html.escape(text)
    for encoded in (quote(text, safe=""), quote(text), quote_plus(text)):
        yield encoded
        yield re.sub("%..", lambda found: found[0].lower(), encoded)
    for piece in _base64(text.encode()):
        yield piece
        yield piece.translate(_URL_SAFE)


def _base64(data: bytes) -> Iterator[str]:
    """The base64 forms of a value, also as part of a longer encoded text such as `user:password`: at each of the three
    offsets, without the characters that depend on the neighbouring bytes."""
    yield base64.b64encode(data).decode()
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + data)
        first = (offset * 8 + 5) // 6
        yield encoded[first : (len(data) + offset) * 8 // 6].decode()


class Mask:
    """Masks the values of one call."""

    __slots__ = ("_forms", "values")

    def __init__(self, values: Iterable[str], forms: Iterable[tuple[str, ...]] | None = None) -> None:
        """`forms`: those of the values, where they are known already."""
        self.values = tuple(values)
        known = map(forms_of, self.values) if forms is None else forms
        self._forms = tuple(sorted({form for some in known for form in some}, key=len, reverse=True))

    def __repr__(self) -> str:
        return f"Mask({len(self.values)} values)"

    def joined(self, other: Mask | None) -> Mask:
        """Masks the values of both."""
        return self if other is None else Mask((*self.values, *other.values), (self._forms, other._forms))

    def text(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASKED)
        return text

    def cut_text(self, text: str) -> str:
        """Mask a text that was truncated: also parts of values at its start and end. Only for such text, because a
        masked part reveals how a value begins or ends."""
        text = self.text(text)
        for form in self._forms:
            text = _without_beginning_of(form, _without_end_of(form, text))
        return text

    def document(self, value: Any, *, cut: bool = False) -> Any:
        """Mask all texts, keys and numbers of a JSON document. An object that says that it is `truncated` was cut."""
        if isinstance(value, str):
            return self.cut_text(value) if cut else self.text(value)
        if isinstance(value, dict):
            cut = cut or value.get("truncated") is True
            return {self.text(str(key)): self.document(one, cut=cut) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(one, cut=cut) for one in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            written = str(value)
            return value if self.text(written) == written else MASKED
        return value


def literal_mask(target: Target) -> Mask | None:
    """Masks the literal credentials in the headers of a target; None: it has none, as nearly always."""
    if type(target) is not HttpTarget and type(target) is not TopicTarget:
        return None
    if not target.headers:
        return None
    values = literal_values(target)
    if not values:
        return None
    return _mask_once(values) if sum(map(len, values)) <= LONGEST_KEPT else Mask(values)


_mask_once = lru_cache(maxsize=256)(Mask)


def _without_beginning_of(form: str, text: str) -> str:
    """Mask the end of the text where it is the beginning of this form."""
    place = text.find(form[:SHORTEST_VALUE], max(0, len(text) - len(form) + 1))
    while place >= 0:
        if form.startswith(text[place:]):
            return text[:place] + MASKED
        place = text.find(form[:SHORTEST_VALUE], place + 1)
    return text


def _without_end_of(form: str, text: str) -> str:
    """Mask the beginning of the text where it is the end of this form."""
    if len(text) < SHORTEST_VALUE:
        return text
    place = form.find(text[:SHORTEST_VALUE], 1)
    while place >= 0:
        if text.startswith(form[place:]):
            return MASKED + text[len(form) - place :]
        place = form.find(text[:SHORTEST_VALUE], place + 1)
    return text
