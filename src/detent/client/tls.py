"""TLS with the API server: which authorities are trusted, and the certificate that the client shows."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from detent.errors import UsageError

VARIABLES = {"ca_file": "DETENT_CA_FILE", "client_cert": "DETENT_CLIENT_CERT", "client_key": "DETENT_CLIENT_KEY"}


class ClientTls(NamedTuple):
    """`ca_file`: trust only servers with a certificate of these authorities. `client_cert` and `client_key`: for a
    server that asks for a certificate; the key may be in the file of the certificate."""

    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None

    def context(self) -> ssl.SSLContext | None:
        """None: everything is as the system has it. Raises UsageError if a file cannot be used."""
        if self.client_key is not None and self.client_cert is None:
            raise UsageError("A client key is given without a certificate: give --client-cert or DETENT_CLIENT_CERT.")
        if self.ca_file is None and self.client_cert is None:
            return None
        # Reading certificates takes a library that loads slowly, so only those who need it wait for it.
        from detent.runtime.certificates import CertificateFault, client_context, read_pair

        try:
            pair = None
            if self.client_cert is not None:
                certificate = _content(self.client_cert)
                pair = read_pair(certificate, certificate if self.client_key is None else _content(self.client_key))
            return client_context(pair, None if self.ca_file is None else _content(self.ca_file))
        except CertificateFault as fault:
            own_key = fault.part == "key" and self.client_key is not None
            path = self.ca_file if fault.part == "authorities" else self.client_key if own_key else self.client_cert
            raise UsageError(f"{path} cannot be used: {fault}.") from fault


SYSTEM_TLS = ClientTls()


def tls_of(
    ca_file: str | os.PathLike[str] | None,
    client_cert: str | os.PathLike[str] | None,
    client_key: str | os.PathLike[str] | None,
    environ: Mapping[str, str] = os.environ,
) -> ClientTls:
    """The arguments, else the values of the environment."""
    given = {"ca_file": ca_file, "client_cert": client_cert, "client_key": client_key}
    found = {name: given[name] or environ.get(variable) or None for name, variable in VARIABLES.items()}
    return ClientTls(**{name: None if path is None else Path(path).expanduser() for name, path in found.items()})


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): give a file in PEM form.") from error


# Many servers do not say why they refuse a client certificate.
CLOSED = (
    "it closed the connection without an answer; if it asks for a client certificate, give one with --client-cert or "
    "DETENT_CLIENT_CERT"
)


def tls_reason(error: BaseException) -> str | None:
    """Why a call of an https:// address failed, for people; None: TLS was not the reason."""
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return CLOSED
    if isinstance(error, ssl.SSLCertVerificationError):
        why = getattr(error, "verify_message", "") or "it is not valid"  # subclasses of aiohttp have none
        return f"its certificate is not trusted ({why}); name its authority with --ca-file or DETENT_CA_FILE"
    if not isinstance(error, ssl.SSLError):
        return None
    reason = (error.reason or "the TLS handshake failed").replace("_", " ").lower()
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return f"it asks for another client certificate ({reason}); give one with --client-cert or DETENT_CLIENT_CERT"
    if "wrong version number" in reason or "record layer failure" in reason:
        return "it does not speak HTTPS; use http:// in the address"
    return reason
