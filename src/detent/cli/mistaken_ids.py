"""What is meant where a job was named in the place of a run, or a run in the place of a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from detent.domain.id_prefix import id_range
from detent.errors import DetentError, NotFound

if TYPE_CHECKING:
    from detent.client import JsonClient


@contextmanager
def perhaps_a_run(text: str) -> Iterator[None]:
    """An unknown job whose name has the form of an id is perhaps a run."""
    try:
        yield
    except NotFound as error:
        if id_range(text) is None:
            raise
        raise NotFound(f"{error.message} If it is the id of a run: `detent run explain {text}`.") from None


@contextmanager
def perhaps_a_job(client: JsonClient, text: str) -> Iterator[None]:
    """An unknown run may be the name of a job."""
    try:
        yield
    except NotFound:
        if id_range(text) is not None or not _is_job(client, text):
            raise
        raise NotFound(
            f"{text} is a job and not the id of a run: `detent job history {text}` lists its runs."
        ) from None


def _is_job(client: JsonClient, text: str) -> bool:
    try:
        client.get_job(text)
    except DetentError:
        return False
    return True
