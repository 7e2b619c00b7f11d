"""The one error of the schedule package."""

from __future__ import annotations


class ScheduleError(ValueError):
    """A schedule that cannot be read, or can never fire.

    `pointer` is a JSON pointer relative to the job document, "" when no single field is to blame.
    """

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer

    def at(self, pointer: str) -> ScheduleError:
        """The same error, blamed on `pointer` unless it already names a field."""
        return self if self.pointer else ScheduleError(self.message, pointer)
