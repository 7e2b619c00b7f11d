"""Callbacks of targets: who may report the end of a run without an API key.

The credential that a target got with its call is worth the three reports about that one attempt, and nothing else. It
is checked with a key in memory, and a bad one is charged to its network as a bad API key is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

from starlette.requests import Request

from detent.api.auth import Caller, KeyAuthenticator, bearer_text
from detent.domain.callbacks import is_credential
from detent.domain.identity import decode_run_id, run_id
from detent.domain.names import is_job_id
from detent.errors import NotAuthorised
from detent.worker.callbacks import CallbackKeys

FORGED = (
    "This callback credential is not valid for this run: send the value of the header Detent-Callback-Token of the "
    "call, to the address in its header Detent-Callback-Url."
)


class CallbackAuthenticator:
    def __init__(self, keys: CallbackKeys, authenticator: KeyAuthenticator) -> None:
        self._keys = keys
        self._authenticator = authenticator

    async def identify(self, request: Request) -> Caller | None:
        """The target that sends this request. None: the request has no credential of a callback."""
        text = bearer_text(request.headers)
        if text is None or not is_credential(text):
            return None
        address = self._authenticator.clients.of(request)
        find = partial(self._caller, request.path_params["id"], text)
        digest = hashlib.sha256(text.encode()).digest()
        caller = await self._authenticator.failures.look_up(address, digest, find, _Checked(find))
        if caller is None:
            raise NotAuthorised(FORGED)
        await self._authenticator.count(caller)
        return caller

    async def _caller(self, run: str, credential: str) -> Caller | None:
        key = decode_run_id(UUID(run)) if is_job_id(run) else None
        proven = None if key is None else await self._keys.proven(str(run_id(key)), credential)
        if proven is None:
            return None
        return Caller(proven.tenant, "work", name="callback", callback=(proven.token, credential))


class _Checked:
    """Credentials need no list of valid ones: each proves itself."""

    def __init__(self, find: Callable[[], Awaitable[object]]) -> None:
        self._find = find

    async def has(self, digest: bytes) -> bool:
        return await self._find() is not None


def check_token(caller: Caller, token: int) -> None:
    """A credential is for one attempt: its token is the one that the report names."""
    if caller.callback is not None and caller.callback[0] != token:
        raise NotAuthorised(
            f"This callback credential is for another attempt than the token {token}: send the value of the header "
            "Detent-Token of the same call."
        )
