"""Failures of HTTP calls: one sentence without secrets, and whether a retry may help."""

from __future__ import annotations

import os
import re
import ssl

import aiohttp
from yarl import URL

from detent.domain.run import Failed
from detent.domain.target_access import TargetFault
from detent.targets.guard import AddressRefusedError
from detent.targets.text import one_line


class BrokenConnectionError(aiohttp.ClientError):
    """The connection broke. `sent`: something of the request may have been."""

    def __init__(self, cause: Exception, *, sent: bool = True) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.sent = sent


class BadAnswerError(aiohttp.ClientError):
    """The answer is not HTTP, or its headers are too large: the host answered."""


def refusal_of(error: Exception) -> TargetFault | None:
    """Why no socket was created, if the rules of the tenant are the reason."""
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, AddressRefusedError):
        return error.os_error.fault
    return None


def is_unsent(error: Exception) -> bool:
    """Whether nothing of the request was sent: there was no connection, or it was closing already."""
    if isinstance(error, BrokenConnectionError):
        return not error.sent
    return isinstance(error, aiohttp.ClientConnectorError | aiohttp.ServerTimeoutError | TimeoutError)


def says_about_host(error: Exception, *, own_tls: bool) -> bool:
    """Whether the error means that the host does not answer; else it says something about the call. `own_tls`: the job
    has certificates of its own, which may be what the host does not accept."""
    if isinstance(error, aiohttp.InvalidURL):
        return False
    in_tls = isinstance(error, aiohttp.ClientSSLError) or _tls_alert(error) is not None
    return not (own_tls and (in_tls or isinstance(error, BrokenConnectionError)))


def connection_failure(error: Exception, url: URL, label: str, *, shows_certificate: bool = False) -> Failed:
    """`shows_certificate`: the call has a client certificate, which may be why the server closed the connection."""
    if isinstance(error, aiohttp.InvalidURL):
        return Failed(f"{label} was not called: its host cannot be used.", retryable=False)
    sentence = _sentence(error, f"{url.host_subcomponent}:{url.port}", label)
    if shows_certificate and isinstance(error, BrokenConnectionError) and _tls_alert(error) is None:
        sentence += " It may not accept the client certificate of the job."
    return Failed(sentence)


def _tls_alert(error: Exception) -> str | None:
    """What a server said before it closed the connection. aiohttp keeps only the text of the error."""
    found = _ALERT.search(str(error))
    return found[1].replace("_", " ").lower() if found else None


_ALERT = re.compile(r"\[SSL: (?:TLSV?\d*|SSLV\d)_ALERT_(\w+)\]")


def _sentence(error: Exception, peer: str, label: str) -> str:
    alert = _tls_alert(error)
    if alert is not None and ("certificate" in alert or alert in ("unknown ca", "access denied")):
        return f"{peer} did not accept the client certificate of the call: {alert}."
    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"The host name of {label} could not be resolved: {reason_of(error.os_error)}."
        case aiohttp.ClientConnectorCertificateError():
            return f"The certificate of {peer} was not accepted: {reason_of(error.certificate_error)}."
        case aiohttp.ClientConnectorSSLError():
            return f"No secure connection to {peer} could be made: {reason_of(error.os_error)}."
        case aiohttp.ClientConnectorError():
            return f"No connection to {peer} could be made: {reason_of(error.os_error)}."
        case aiohttp.ServerTimeoutError() | TimeoutError():
            return f"No connection to {peer} could be made: no answer in time."
        case BrokenConnectionError(cause=aiohttp.ServerDisconnectedError()):
            return f"{peer} closed the connection before it answered {label}."
        case BrokenConnectionError(cause=OSError() as cause):
            return f"The connection to {peer} broke before {label} answered: {reason_of(cause)}."
        case BadAnswerError():
            return f"{peer} sent an answer for {label} that is not valid HTTP or whose headers are too large."
        case _:
            return f"The call to {label} failed: {reason_of(error)}."


def reason_of(error: BaseException) -> str:
    """The system's text if it has one: str() would repeat numbers, addresses and class names."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return one_line(error.verify_message)
    if isinstance(error, ssl.SSLError):
        return one_line((error.reason or "the TLS handshake failed").replace("_", " ").lower())
    if isinstance(error, OSError):
        code = error.errno
        text = os.strerror(code) if code is not None and code > 0 else error.strerror
        if text:
            return one_line(text[0].lower() + text[1:]).rstrip(".")
    return one_line(str(error)).rstrip(".") or type(error).__name__
