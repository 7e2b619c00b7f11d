"""Secrets that the operator of a worker provides: variables of its environment and files of one folder, as Kubernetes
and systemd provide them. Only what was opened is read, and only for jobs of the tenants that were named."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from detent.domain.job import DEFAULT_TENANT
from detent.domain.secret_ref import LONGEST_VALUE, provider_of, value_fault

OUR_PREFIX = "DETENT_"
EMPTY: Mapping[str, str] = MappingProxyType({})


class SecretFault(Exception):  # noqa: N818 - it says what happened
    """A secret cannot be used; the sentence names the reference, never the value."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"The secret {name!r} could not be used: {why}.")


class SecretProviders:
    def __init__(
        self,
        patterns: Collection[str] = (),
        directory: Path | None = None,
        tenants: Collection[int] = (DEFAULT_TENANT,),
        environ: Mapping[str, str] = EMPTY,
    ) -> None:
        """`patterns`: which variables of `environ` are opened. `tenants`: whose jobs may use both."""
        self._patterns = patterns
        self._directory = directory
        self._tenants = tenants
        self._environ = environ

    async def read(self, tenant: int, reference: str) -> str:
        kind, name = provider_of(reference)
        if tenant not in self._tenants:
            raise SecretFault(reference, "its tenant is not in secret_provider_tenants of this worker")
        value = self._variable(reference, name) if kind == "env" else await self._file(reference, name)
        fault = value_fault(value)
        if fault is not None:
            why, _, _ = fault.partition(":")
            raise SecretFault(reference, why[0].lower() + why[1:])
        return value

    def _variable(self, reference: str, name: str) -> str:
        opened = any(fnmatchcase(name, pattern) for pattern in self._patterns)
        if not opened or name.startswith(OUR_PREFIX):
            raise SecretFault(reference, "this worker does not open that variable in secret_environment")
        if name not in self._environ:
            raise SecretFault(reference, "this worker has no such variable")
        return self._environ[name]

    async def _file(self, reference: str, name: str) -> str:
        if self._directory is None:
            raise SecretFault(reference, "this worker has no secret_directory")
        try:
            return await asyncio.to_thread(_read_file, self._directory / name)
        except (OSError, ValueError) as error:
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it is not UTF-8 text"
            raise SecretFault(reference, f"the file cannot be read ({why})") from None


def _read_file(path: Path) -> str:
    """The text of the file without the line end that editors add. Reads one byte more than the limit, so that a longer
    text is noticed."""
    with path.open("rb") as file:
        text = file.read(LONGEST_VALUE + 1).decode()
    return text.removesuffix("\n").removesuffix("\r")
