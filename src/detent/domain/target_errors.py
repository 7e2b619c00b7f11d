"""The one error of this package that people read at registration."""

from __future__ import annotations


class TargetError(ValueError):
    """A target that cannot be called as written; `pointer` says which part of the job document is meant."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(message)
        self.pointer = pointer
        self.message = message


def pointer_to(*parts: str | int) -> str:
    """A JSON pointer into the job document; names may hold the two characters that pointers escape."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in ("target", *parts))
