"""Certificates and private keys in PEM form: whether they can be used, until when, and the TLS contexts made of them.

`ssl` says little about what is wrong with a file, and asks on the terminal for the passphrase of an encrypted key. So
everything is read here first; a fault is one clause that never shows a part of a key.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

WARNED_BEFORE = timedelta(days=14)

Part = Literal["certificate", "key", "authorities"]

# A key ends before the next dashes: a search through thousands of beginnings would stop the process for a second.
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----(?:[^-]|-(?!----))*+-----END \1-----")


class CertificateFault(Exception):  # noqa: N818 - it says what was found
    """`part` cannot be used. `why` is a clause, and `advice` what to do."""

    def __init__(self, part: Part, why: str, advice: str) -> None:
        super().__init__(f"{why}; {advice}")
        self.part = part
        self.why = why
        self.advice_sentence = f"{advice[0].upper()}{advice[1:]}."


class CertificatePair(NamedTuple):
    """A certificate, with those between it and its authority, and its private key."""

    certificate: bytes
    key: bytes
    subject: str
    not_before: datetime
    not_after: datetime

    def __repr__(self) -> str:
        return f"CertificatePair({self.subject!r}, until {instant(self.not_after)})"

    def check_time(self, now: datetime) -> None:
        if now >= self.not_after:
            raise CertificateFault("certificate", f"the certificate expired on {instant(self.not_after)}", "renew it")
        if now < self.not_before:
            why = f"the certificate is valid only from {instant(self.not_before)} on"
            raise CertificateFault("certificate", why, "check the clock of this machine")

    def expires_soon(self, now: datetime) -> bool:
        return self.not_after - now < WARNED_BEFORE


def instant(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def read_pair(certificate: bytes, key: bytes) -> CertificatePair:
    """Both may be in one text. Raises CertificateFault if they cannot be used at any time."""
    first = _certificates(certificate, "certificate")[0]
    found = _KEY.search(key)
    if found is None:
        raise CertificateFault("key", "there is no private key in PEM form", "add it")
    try:
        private = load_pem_private_key(found[0], None)
        same = private.public_key().public_bytes(*_PUBLIC) == first.public_key().public_bytes(*_PUBLIC)
    except TypeError:
        advice = "store it without a passphrase, where only detent can read it"
        raise CertificateFault("key", "the private key is encrypted", advice) from None
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateFault("key", "the private key cannot be read", "write it again, in PEM form") from None
    if not same:
        advice = "give the key that the certificate was made for"
        raise CertificateFault("key", "the private key does not belong to the certificate", advice)
    subject = first.subject.rfc4514_string()
    return CertificatePair(certificate, found[0], subject, first.not_valid_before_utc, first.not_valid_after_utc)


_PUBLIC = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def check_authorities(text: bytes) -> None:
    _certificates(text, "authorities")


def _certificates(text: bytes, part: Part) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text)
    except ValueError:
        raise CertificateFault(part, "there is no certificate in PEM form", "give one") from None


def server_context(
    pair: CertificatePair, client_authorities: bytes | None, kind: type[ssl.SSLContext] = ssl.SSLContext
) -> ssl.SSLContext:
    """`client_authorities`: clients need a certificate of one of these."""
    context = kind(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _load(context, pair)
    if client_authorities is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, client_authorities)
    return context


def client_context(pair: CertificatePair | None, authorities: bytes | None) -> ssl.SSLContext:
    """`authorities`: only servers with a certificate of one of these are trusted; None: those the system trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if authorities is None:
        context.load_default_certs()
    else:
        _trust(context, authorities)
    if pair is not None:
        _load(context, pair)
    return context


def _trust(context: ssl.SSLContext, authorities: bytes) -> None:
    check_authorities(authorities)
    try:
        context.load_verify_locations(cadata=authorities.decode("ascii", "ignore"))
    except ssl.SSLError as error:
        raise CertificateFault(
            "authorities", f"OpenSSL refuses a certificate ({_reason(error)})", "replace it"
        ) from None


def _load(context: ssl.SSLContext, pair: CertificatePair) -> None:
    """`ssl` reads files only. These two exist in memory alone, so that a key that came from a secret is on no disk."""
    with _as_file(pair.certificate) as certificate, _as_file(pair.key) as key:
        try:
            context.load_cert_chain(certificate, key, password="")  # or it would ask on the terminal
        except ssl.SSLError as error:
            why = f"OpenSSL refuses the certificate or its key ({_reason(error)})"
            raise CertificateFault("certificate", why, "replace it") from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unknown reason").replace("_", " ").lower()


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    if not hasattr(os, "memfd_create"):  # only Linux has it
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
