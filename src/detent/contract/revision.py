"""Revisions of a job in the public API."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from detent.contract.page import Instant
from detent.domain.job import JobSpec


class FieldChange(Struct, frozen=True, kw_only=True):
    """One part of a job that differs; a value that did not exist, or no longer exists, is left out."""

    path: str
    before: Any | UnsetType = UNSET
    after: Any | UnsetType = UNSET


class Revision(Struct, frozen=True, kw_only=True):
    """A definition of a job: who made it, when, and how it differs from the previous one. `changes` is null where the
    previous one is not known."""

    revision: int
    changed_by: str | None
    made_at: Instant
    replaced_at: Instant | None
    changes: list[FieldChange] | None


class WholeRevision(Revision, frozen=True, kw_only=True):
    """A revision with the job as it was; null where this version cannot read it."""

    definition: JobSpec | None
