"""ETag, If-Match and If-None-Match.

The tag of a job is its revision, so it changes with the definition and with nothing else: to see the last run, read the
job without a condition. A change that names a revision is made to that revision or not at all.
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

from detent.api.problems import Refusal
from detent.jobs.edits import Expected

_TAG = re.compile(r'\s*(?P<weak>W/)?"(?P<tag>[\x21\x23-\x7e\x80-\xff]*)"\s*')
PATTERN = r'^(\*|"[0-9]{1,9}"(, "[0-9]{1,9}")*)$'

Tags = Annotated[
    str, Meta(description="The ETag of the job as you know it, or *.", extra_json_schema={"pattern": PATTERN})
]


class ChangeHeaders(Struct):
    """The change is made only to a job that has one of these tags."""

    if_match: Tags | None = None


class PutHeaders(Struct):
    """As ChangeHeaders; with `If-None-Match: *` the job must not exist yet."""

    if_match: Tags | None = None
    if_none_match: Tags | None = None


class ReadHeaders(Struct):
    """304 instead of the job while it still has one of these tags."""

    if_none_match: Tags | None = None


def tag_of(revision: int) -> str:
    return f'"{revision}"'


def expected(headers: ChangeHeaders | PutHeaders) -> Expected:
    absent = isinstance(headers, PutHeaders) and headers.if_none_match is not None
    if absent and headers.if_none_match != "*":  # type: ignore[union-attr]  # absent says that it is PutHeaders
        raise _unreadable("If-None-Match", "*")
    if headers.if_match is None:
        return Expected(absent=absent)
    if headers.if_match.strip() == "*":
        return Expected(present=True, absent=absent)
    strong = frozenset(tag for weak, tag in _tags("If-Match", headers.if_match) if not weak)
    revisions = frozenset(
        int(tag) for tag in strong if tag.isascii() and tag.isdecimal() and tag_of(int(tag)) == f'"{tag}"'
    )
    return Expected(revisions, present=True, absent=absent)


def not_modified(headers: ReadHeaders, revision: int) -> bool:
    if headers.if_none_match is None:
        return False
    if headers.if_none_match.strip() == "*":
        return True
    return str(revision) in {tag for _, tag in _tags("If-None-Match", headers.if_none_match)}


def _tags(name: str, text: str) -> list[tuple[bool, str]]:
    found = [_TAG.fullmatch(part) for part in text.split(",")]
    if any(part is None for part in found):
        raise _unreadable(name, '"3"')
    return [(part["weak"] is not None, part["tag"]) for part in found if part is not None]


def _unreadable(name: str, example: str) -> Refusal:
    return Refusal(
        400, "malformed-request", f"The header {name} cannot be read: write the ETag of the job, such as {example}."
    )
