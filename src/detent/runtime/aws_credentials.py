"""Credentials and region of this machine for AWS, where its own tools would find them."""

from __future__ import annotations

import asyncio
from typing import Any

from detent.runtime.aws_signature import AwsCredentials


class MachineIdentity:
    """Read in threads: the first reading loads the library of AWS, and each may ask a server of its own."""

    def __init__(self) -> None:
        self._session: Any = None
        self._chain: Any = None

    async def credentials(self) -> AwsCredentials | None:
        """Raises ImportError if the library of AWS is not installed."""
        return await asyncio.to_thread(self._read_chain)

    async def region(self) -> str | None:
        return await asyncio.to_thread(self._read_region)

    def _opened(self) -> Any:
        if self._session is None:
            import botocore.session

            self._session = botocore.session.Session()
        return self._session

    def _read_chain(self) -> AwsCredentials | None:
        if self._chain is None:
            self._chain = self._opened().get_credentials()
        if self._chain is None:
            return None
        frozen = self._chain.get_frozen_credentials()
        return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token)

    def _read_region(self) -> str | None:
        found = self._opened().get_config_variable("region")
        return str(found) if found else None
