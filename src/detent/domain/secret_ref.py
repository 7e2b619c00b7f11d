"""References to secrets: `{"secret": "name"}` instead of a value. No I/O.

A name is a secret of the job's tenant. `env:NAME` and `file:NAME` are read by the worker that runs the job, from what
its operator opened. The value exists only in the process that calls the target.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct

Provider = Literal["stored", "env", "file"]

SHORTEST_VALUE = 6
"""Shorter values cannot be masked in answers: they would occur everywhere."""
LONGEST_VALUE = 65_536

STORED_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
REFERENCE = (
    r"^(?:[A-Za-z0-9][A-Za-z0-9._-]{0,99}|env:[A-Za-z_][A-Za-z0-9_]{0,199}|file:(?!\.{1,2}$)[A-Za-z0-9._-]{1,200})$"
)
SecretName = Annotated[
    str, Meta(pattern=STORED_NAME, description="Letters, digits, dots, hyphens and underscores, at most 100.")
]

_REFERENCE = re.compile(REFERENCE)


class SecretRef(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret by its name; the value is filled in when a worker calls the target."""

    secret: Annotated[str, Meta(pattern=REFERENCE)]

    def __str__(self) -> str:
        """The reference in the form that users write in a header on the command line and in the dashboard's form."""
        return f'{{"secret": "{self.secret}"}}'


def is_reference_name(name: str) -> bool:
    return _REFERENCE.fullmatch(name) is not None  # `$` also matches before a line end


def provider_of(name: str) -> tuple[Provider, str]:
    """Where the secret is, and its name there."""
    kind, colon, rest = name.partition(":")
    if not colon:
        return "stored", name
    return ("env", rest) if kind == "env" else ("file", rest)


def value_fault(value: object) -> str | None:
    """What is wrong with the value of a secret; the sentence does not show it."""
    if not isinstance(value, str):
        return "The value is not text: give a string."
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        return "The value has a NUL character or is not valid Unicode: give text."
    if len(value) < SHORTEST_VALUE:
        return (
            f"The value has fewer than {SHORTEST_VALUE} characters, too few to mask it in answers: give a longer one."
        )
    if len(value.encode()) > LONGEST_VALUE:
        return f"The value is longer than {LONGEST_VALUE} bytes: keep it elsewhere, and store a key to it."
    return None


def read_header(text: str) -> str | SecretRef:
    """A header's value as people write it: text, or a reference as JSON."""
    found = _WRITTEN.fullmatch(text)
    return SecretRef(found[1]) if found and is_reference_name(found[1]) else text


_WRITTEN = re.compile(r'\{\s*"secret"\s*:\s*"([^"\\]*)"\s*\}')
