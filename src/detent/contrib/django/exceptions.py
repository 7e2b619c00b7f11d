"""What the errors of a result can name, besides the exceptions of the task itself."""

from __future__ import annotations


class TaskCancelled(Exception):  # noqa: N818 - named after what happened, as in errors.py
    """The run was cancelled, or never ran; the text of the error has the reason."""


class AttemptLost(Exception):  # noqa: N818 - as above
    """The worker was lost during the attempt, or the attempt exceeded its timeout."""
