"""Checks of the certificates that the settings name: those of the server, and those of the command line."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from detent.cli.doctor.results import CheckResult
from detent.runtime.certificates import CertificateFault, check_authorities, instant, read_pair
from detent.settings.settings import Settings


def check_certificates(settings: Settings) -> Iterator[CheckResult]:
    for what, certificate, key in (
        ("tls_cert", settings.tls_cert, settings.tls_key),
        ("client_cert", settings.client_cert, settings.client_key or settings.client_cert),
    ):
        if certificate is not None and key is not None:
            yield _check_pair(what, certificate, key)
        elif certificate is not None or key is not None:
            missing = what.replace("cert", "key") if key is None else what
            yield CheckResult("certificate", "fail", f"{missing} is not set.", "Set the certificate and its key.")
    for what, path in (("tls_client_ca", settings.tls_client_ca), ("ca_file", settings.ca_file)):
        if path is not None:
            yield from _check_authorities(what, path)


def _check_pair(what: str, certificate: Path, key: Path) -> CheckResult:
    now = datetime.now(UTC)
    try:
        pair = read_pair(certificate.read_bytes(), key.read_bytes())
        pair.check_time(now)
    except OSError as error:
        text = f"{what} cannot be checked: {error.filename} cannot be read ({error.strerror})."
        return CheckResult("certificate", "warn", text, "Run the doctor as the user that runs detent, or as root.")
    except CertificateFault as fault:
        return _fault(what, certificate, fault)
    text = f"The certificate of {what}, {pair.subject} in {certificate}, expires on {instant(pair.not_after)}."
    if pair.expires_soon(now):
        return CheckResult("certificate", "warn", text, "Renew it: a server reads the new file when it is there.")
    return CheckResult("certificate", "ok", text)


def _check_authorities(what: str, path: Path) -> Iterator[CheckResult]:
    try:
        check_authorities(path.read_bytes())
    except OSError as error:
        text = f"{what} cannot be checked: {path} cannot be read ({error.strerror})."
        yield CheckResult("certificate", "warn", text, "Run the doctor as the user that runs detent, or as root.")
    except CertificateFault as fault:
        yield _fault(what, path, fault)


def _fault(what: str, path: Path, fault: CertificateFault) -> CheckResult:
    return CheckResult("certificate", "fail", f"{what} {path} cannot be used: {fault.why}.", fault.advice_sentence)


def presents_certificate(settings: Settings) -> bool:
    """Whether what listens at the configured address is a server with the certificate of tls_cert."""
    if settings.tls_cert is None:
        return False
    try:
        own = ssl.PEM_cert_to_DER_cert(_first(settings.tls_cert.read_text("ascii", "ignore")))
        shown = ssl.get_server_certificate((settings.host.strip("[]"), settings.port), timeout=2)
    except (OSError, ValueError):
        return False
    return ssl.PEM_cert_to_DER_cert(shown) == own


def _first(text: str) -> str:
    """The first certificate of a chain is the server's own."""
    begin, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
    return text[begin : end + len(ssl.PEM_FOOTER)] if 0 <= begin < end else ""
