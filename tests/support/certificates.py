"""Certificates for tests: an authority, and certificates that it signs. The programs that use them."""

from __future__ import annotations

import ipaddress
import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

HOSTS = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
DAY = timedelta(days=1)


def require(program: str) -> None:
    if shutil.which(program) is None:
        text = f"{program} must be installed: apt-get install {program}"
        pytest.fail(text) if os.environ.get("CI") == "true" else pytest.skip(text)


class Issued(NamedTuple):
    certificate: str
    key: str

    @property
    def text(self) -> str:
        """Both in one text, as the client certificate of a target is stored."""
        return self.certificate + self.key

    @property
    def serial(self) -> int:
        return x509.load_pem_x509_certificate(self.certificate.encode()).serial_number

    def encrypted(self) -> str:
        private = load_pem_private_key(self.key.encode(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        return _text_of(private, BestAvailableEncryption(b"passphrase"))


class Authority:
    def __init__(self, name: str = "Test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._certificate = (
            _builder(self._name, self._name, self._key, timedelta(days=-1), timedelta(days=365))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = self._certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, name: str = "localhost", *, lasts: timedelta = 90 * DAY, begins: timedelta = -DAY) -> Issued:
        """A certificate for this machine, or for a client of this name; from `begins` on, until `lasts` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_named(name), self._name, key, begins, lasts)
            .add_extension(x509.SubjectAlternativeName(HOSTS), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Issued(certificate.public_bytes(Encoding.PEM).decode(), _text_of(key, NoEncryption()))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begins: timedelta, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + lasts)
    )


def _text_of(key: ec.EllipticCurvePrivateKey, encryption: KeySerializationEncryption) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
