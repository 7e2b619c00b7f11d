"""What is told of a job's past: its revisions, its ticks and what became of them. Names are the contract here too."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from detent.contract.page import Instant
from detent.domain.job import JobSpec


class FieldChange(Struct, frozen=True, kw_only=True):
    """One part of a job that is different; what was not there, or is not there now, is left out."""

    path: str
    before: Any | UnsetType = UNSET
    after: Any | UnsetType = UNSET


class Revision(Struct, frozen=True, kw_only=True):
    """A definition of a job: who made it, when, and in what it differs from the one before. `changes` is null where
    that cannot be told."""

    revision: int
    changed_by: str | None
    made_at: Instant
    replaced_at: Instant | None
    changes: list[FieldChange] | None


class WholeRevision(Revision, frozen=True, kw_only=True):
    """A revision with the job as it was; null where this version cannot read it."""

    definition: JobSpec | None
