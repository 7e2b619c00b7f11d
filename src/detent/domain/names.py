"""The names of a job: its own, its queue and its tags."""

from __future__ import annotations

import re

from detent.domain.job import JobSpec
from detent.domain.refusal import pointer_to, shown
from detent.domain.text import check_seen
from detent.errors import UsageError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_QUEUE = re.compile(r"[^\s,\x00]{1,128}")
_ID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)


def is_job_id(text: str) -> bool:
    """Whether this text is an id; no job can have such a name."""
    return _ID.fullmatch(text) is not None


def check_names(spec: JobSpec) -> None:
    if spec.name is not None:
        _check_name(spec.name)
    if not _QUEUE.fullmatch(spec.queue):
        raise UsageError(
            f"The queue is {shown(spec.queue)}: give at most 128 characters, without spaces and commas.",
            "/queue",
        )
    check_seen(spec.queue, "The queue", "/queue")
    for position, tag in enumerate(spec.tags):
        if _CONTROL.search(tag) or tag != tag.strip():
            raise UsageError(
                f"The tag {shown(tag)} has control characters, or spaces around it: remove them.",
                pointer_to("tags", position),
            )
        check_seen(tag, "The tag", pointer_to("tags", position))
        if tag in spec.tags[:position]:
            raise UsageError(f"The tag {shown(tag)} is given twice: keep one of them.", pointer_to("tags", position))


def _check_name(name: str) -> None:
    if _CONTROL.search(name) or name != name.strip():
        raise UsageError(f"The name {shown(name)} has control characters, or spaces around it: remove them.", "/name")
    check_seen(name, "The name", "/name")
    if is_job_id(name) or name in (".", ".."):
        raise UsageError(f"The name {shown(name)} reads like an id or a path: choose another.", "/name")
