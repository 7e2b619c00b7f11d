"""Jobs in the words of other schedulers, sent to this API: refused with the body that it reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from detent.api.context import PREFIX
from detent.api.problems import ForeignJob, TranslatedRequest
from detent.domain.foreign_job import UntranslatedJob, is_foreign, translate_job
from detent.errors import UsageError

MAX_TRANSLATED_BYTES = 16_384
"""Larger bodies are refused without a translation, which is made on the event loop here."""
JOBS = f"{PREFIX}/jobs"


def with_translation(fault: UsageError, document: Any, size: int) -> UsageError:
    """The refusal of a job; with its translation, if it is one in other words or without a target."""
    if size > MAX_TRANSLATED_BYTES or not is_foreign(document):
        return fault
    found = translate_job(document, datetime.now(UTC))
    if isinstance(found, UntranslatedJob):
        if not found.renamed:
            return fault
        sentence = f"This job is in the words of another scheduler: {found.renamed}. {refused_as(found.fault)}"
        return UsageError(sentence, found.fault.pointer)
    translation = TranslatedRequest("POST", JOBS, found.document)
    if not found.pointer:
        return ForeignJob(fault.message, fault.pointer, translation)
    sentence = f"This job is in the words of another scheduler: {found.words}; send the request in translation."
    return ForeignJob(sentence, found.pointer, translation)


def refused_as(fault: UsageError) -> str:
    """Why there is no translation."""
    return f"It has no translation, because it is refused in these words too: {fault.message}"
