"""What the clients share: one blocking connection, defaults from the environment, and the check of an answer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import msgspec

from detent.client.operation import Request, Result
from detent.client.operations import Operations
from detent.client.tls import SYSTEM_TLS, ClientTls
from detent.client.transport import ANSWER_SECONDS, ApiAddress, ApiAnswer, ApiConnection
from detent.errors import Unavailable, UsageError

LOCAL = "http://127.0.0.1:8787"


class BlockingClient(Operations):
    """One connection, kept alive between calls. A client is not thread-safe: use one per thread."""

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = ANSWER_SECONDS, tls: ClientTls = SYSTEM_TLS
    ) -> None:
        self._connection = ApiConnection(url, key, timeout=timeout, tls=tls)

    @property
    def url(self) -> str:
        return self._connection.url

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, request: Request[Any]) -> ApiAnswer:
        """The answer to a request; raises the error that a refusal means."""
        answer = self._connection.exchange(
            request.method, request.target, request.content(), request.patience, request.headers
        )
        return accepted(self._connection.address, request, answer)


def url_and_key(url: str | None, key: str | None) -> tuple[str, str | None]:
    """The arguments, else the values of the environment, else the server on this machine."""
    return url or os.environ.get("DETENT_API_URL") or LOCAL, key or os.environ.get("DETENT_API_KEY") or _key_of_file()


def _key_of_file() -> str | None:
    path = os.environ.get("DETENT_API_KEY_FILE")
    if not path:
        return None
    try:
        return Path(path).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The file {path}, which DETENT_API_KEY_FILE names, cannot be read ({error}).") from error


def accepted(address: ApiAddress, request: Request[Any], answer: ApiAnswer) -> ApiAnswer:
    if not request.accepts(answer):
        raise answer.refusal(address)
    if answer.raw and not answer.kind.endswith("json"):
        raise address.foreign(answer)
    return answer


def typed(address: ApiAddress, request: Request[Result], answer: ApiAnswer) -> Result:
    try:
        return request.read(answer)
    except msgspec.ValidationError as error:
        raise Unavailable(
            f"The answer of the server at {address.url} has a form that this client does not know ({error}): "
            "use the same version of both."
        ) from error
    except msgspec.DecodeError as error:
        raise address.foreign(answer) from error
