"""Ids by their beginning, where the server is not asked with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from detent.domain.counts import plural
from detent.errors import NotFound, UsageError

if TYPE_CHECKING:
    from detent.client import JsonClient

SHORTEST = 4
MAX_SHOWN = 5


def one_of(noun: str, text: str, ids: Iterable[str]) -> str:
    """The id, or the only one that begins so. An id that is not among them is left to the server."""
    found = [each for each in ids if each.startswith(text)]
    if text in found or not found:
        return text
    if len(text) < SHORTEST:
        raise UsageError(f"{text!r} is too short for a {noun}: give at least {SHORTEST} characters of its id.")
    if len(found) > 1:
        more = " …" if len(found) > MAX_SHOWN else ""
        raise NotFound(f"{plural(len(found), noun)} begin with {text!r}: {', '.join(found[:MAX_SHOWN])}{more}.")
    return found[0]


def run_ids(client: JsonClient, texts: Sequence[str]) -> list[str]:
    """Whole ids; the server finds the runs of those that are shortened."""
    from detent.domain.names import is_job_id  # imports msgspec, which help must not wait for

    return [text if is_job_id(text) else str(client.get_run(text)["id"]) for text in texts]
