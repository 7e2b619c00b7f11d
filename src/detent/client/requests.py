"""What the descriptions of the verbs share: paths, bodies, and readers of typed answers."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from detent.client.operation import Result
from detent.client.transport import ApiAnswer, segment

PREFIX = "/api/v1"


def job_path(job: str | UUID) -> str:
    """A job is named by its id or its name."""
    return f"{PREFIX}/jobs/{segment(str(job))}"


def run_path(run: str | UUID) -> str:
    return f"{PREFIX}/runs/{segment(str(run))}"


def reader(kind: type[Result]) -> Callable[[ApiAnswer], Result]:
    return lambda answer: msgspec.json.decode(answer.raw, type=kind)


def no_content(answer: ApiAnswer) -> None:
    return None


def given(**fields: object) -> dict[str, object]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}
