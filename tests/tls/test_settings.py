"""Files that cannot be used end the start with one sentence that names the setting; reports of when they expire."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from detent.errors import UsageError
from detent.node.tls import server_tls
from detent.runtime.certificates import read_pair
from detent.settings.settings import Context, Settings
from detent.telemetry.exposition import Exposition
from detent.telemetry.metrics import Metrics
from tests.support.certificates import DAY, Authority, Issued, require
from tests.tls.tls_server import CertificateFolder, serving


def expired(folder: CertificateFolder) -> None:
    folder.put(folder.authority.issue(begins=-10 * DAY, lasts=-DAY))


def future(folder: CertificateFolder) -> None:
    folder.put(folder.authority.issue(begins=DAY))


def mismatching(folder: CertificateFolder) -> None:
    folder.put(Issued(folder.issued.certificate, folder.authority.issue().key))


def encrypted(folder: CertificateFolder) -> None:
    folder.put(Issued(folder.issued.certificate, folder.issued.encrypted()))


def empty(folder: CertificateFolder) -> None:
    folder.put(Issued("", folder.issued.key))


def missing(folder: CertificateFolder) -> None:
    folder.key.unlink()


def no_authority(folder: CertificateFolder) -> None:
    folder.client_ca.write_text("no certificate")


def too_small(folder: CertificateFolder) -> None:
    """A key of a size that OpenSSL no longer accepts."""
    require("openssl")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:512", "-nodes", "-subj", "/CN=localhost"]
    files = ["-keyout", str(folder.key), "-out", str(folder.cert)]
    subprocess.run([*make, *files], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (expired, r"tls_cert is .*cert\.pem: the certificate expired on \d{4}-\d\d-\d\d \d\d:\d\d UTC; renew it\."),
        (future, r"tls_cert is .*: the certificate is valid only from .* on; check the clock of this machine\."),
        (mismatching, r"tls_key is .*key\.pem: the private key does not belong to the certificate; give the key .*\."),
        (encrypted, r"tls_key is .*key\.pem: the private key is encrypted; store it without a passphrase.*\."),
        (empty, r"tls_cert is .*cert\.pem: there is no certificate in PEM form; give one\."),
        (missing, r"tls_key is .*key\.pem, which cannot be read \(No such file or directory\): check .*\."),
        (no_authority, r"tls_client_ca is .*client-ca\.pem: there is no certificate in PEM form; give one\."),
        (too_small, r"tls_cert is .*cert\.pem: OpenSSL refuses the certificate or its key \(ee key too small\).*\."),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    folder: CertificateFolder, spoil: Callable[[CertificateFolder], None], sentence: str
) -> None:
    folder.client_ca.write_text(folder.authority.certificate)
    spoil(folder)
    settings = Settings(**folder.settings, tls_client_ca=folder.client_ca)
    with pytest.raises(UsageError, match=f"^{sentence}$") as caught:
        server_tls(settings, Metrics())
    assert "-----" not in caught.value.message


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tls_cert": Path("a")}, "tls_cert is set without tls_key"),
        ({"tls_key": Path("a")}, "tls_key is set without tls_cert"),
        ({"tls_client_ca": Path("a")}, "tls_client_ca is set without tls_cert and tls_key"),
    ],
)
def test_a_certificate_needs_its_key(given: dict[str, Any], sentence: str) -> None:
    settings = Settings(**given)
    assert settings.tls_given
    with pytest.raises(UsageError, match=sentence):
        server_tls(settings, Metrics())


@pytest.mark.parametrize(("lasts", "warned"), [(13 * DAY, True), (15 * DAY, False)])
async def test_a_certificate_that_expires_soon_is_logged(
    folder: CertificateFolder, lasts: timedelta, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.put(folder.authority.issue(lasts=lasts))
    async with serving(folder):
        assert ("The certificate expires on" in capsys.readouterr().out) == warned


async def test_a_metric_says_when_the_certificate_expires(folder: CertificateFolder) -> None:
    from cryptography import x509

    async with serving(folder) as served:
        text, _ = await Exposition(served.metrics)("")
        ends = x509.load_pem_x509_certificate(folder.issued.certificate.encode()).not_valid_after_utc
        line = next(one for one in text.decode().splitlines() if one.startswith("detent_tls_certificate_expiry"))
        assert float(line.split()[1]) == ends.timestamp()
    without, _ = await Exposition(Metrics())("")
    assert b"tls_certificate" not in without


def test_the_files_of_a_server_are_not_used_for_another(tmp_path: Path) -> None:
    """A certificate shown to a server, and the trust in an authority, belong to the address they were set with."""
    (tmp_path / "detent.toml").write_text('api_url = "https://a.example"\nca_file = "a.pem"\nclient_cert = "me.pem"\n')
    alone = Settings.load({}, {"HOME": "/"}, tmp_path)
    assert (alone.ca_file, alone.client_cert) == (tmp_path / "a.pem", tmp_path / "me.pem")
    elsewhere = Settings.load({"api_url": "https://b.example"}, {"HOME": "/"}, tmp_path)
    assert (elsewhere.ca_file, elsewhere.client_cert) == (None, None)
    context = Context("c", "https://c.example", None, ca_file=tmp_path / "c.pem")
    chosen = Settings.load({}, {"HOME": "/"}, tmp_path, context)
    assert (chosen.ca_file, chosen.client_cert) == (tmp_path / "c.pem", None)


def test_an_authority_signs_what_it_issues() -> None:
    """The tests rely on it."""
    from cryptography import x509

    authority, other = Authority(), Authority("Another")
    issued = x509.load_pem_x509_certificate(authority.issue().certificate.encode())
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.encode()))
    with pytest.raises(ValueError):
        issued.verify_directly_issued_by(x509.load_pem_x509_certificate(other.certificate.encode()))


def test_a_key_is_found_behind_the_beginning_of_one_that_has_no_end() -> None:
    issued = Authority().issue()
    text = issued.text.encode()
    begun = b"-----BEGIN PRIVATE KEY-----\nMIG\n" * 3
    assert read_pair(text, begun + text).key in text
