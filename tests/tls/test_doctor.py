"""What `detent doctor` says of certificates."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from detent.cli.doctor.certificates import check_certificates, presents_certificate
from detent.settings.settings import Settings
from tests.cli.command_line import CommandLine
from tests.support.certificates import DAY
from tests.tls.tls_server import CertificateFolder, serving


@pytest.mark.parametrize(
    ("lasts", "status", "found"),
    [
        (15 * DAY, "ok", "expires on"),
        (13 * DAY, "warn", "expires on"),
        (-DAY, "fail", "cannot be used: the certificate expired on"),
    ],
)
def test_a_certificate_is_ok_expires_soon_or_has_expired(
    folder: CertificateFolder, lasts: timedelta, status: str, found: str
) -> None:
    folder.put(folder.authority.issue(begins=-30 * DAY, lasts=lasts))
    (check,) = check_certificates(Settings(**folder.settings))
    assert check.status == status
    assert found in check.found and str(folder.cert) in check.found
    assert bool(check.advice) == (status != "ok")


def test_the_files_of_the_command_line_are_checked_too(folder: CertificateFolder) -> None:
    folder.client_ca.write_text("no certificate")
    mine = folder.ca.with_name("me.pem")
    mine.write_text(folder.authority.issue("ada", lasts=5 * DAY).text)
    checks = list(check_certificates(Settings(ca_file=folder.client_ca, client_cert=mine)))
    assert [check.status for check in checks] == ["warn", "fail"]
    (unread,) = check_certificates(Settings(ca_file=folder.ca.with_name("missing.pem")))
    assert unread.status == "warn" and "cannot be read" in unread.found


async def test_a_server_is_recognised_by_its_certificate(folder: CertificateFolder) -> None:
    async with serving(folder) as served:
        settings = Settings(**folder.settings, port=served.port)
        assert await asyncio.to_thread(presents_certificate, settings)
        folder.put(folder.authority.issue())  # the server has not read it yet
        assert not await asyncio.to_thread(presents_certificate, settings)


def test_the_doctor_reports_an_expired_certificate(folder: CertificateFolder, tmp_path: Path) -> None:
    folder.put(folder.authority.issue(begins=-30 * DAY, lasts=-DAY))
    detent = CommandLine(tmp_path, "http://127.0.0.1:1")
    done = detent(
        *("doctor", "--data-dir", "data", "--json"),
        DETENT_TLS_CERT=str(folder.cert),
        DETENT_TLS_KEY=str(folder.key),
        DETENT_PORT="0",
    )
    assert done.code == 1, done.err
    checks = {check["check"]: check for check in json.loads(done.out)["checks"]}
    assert checks["certificate"]["status"] == "fail"
    assert checks["certificate"]["advice"] == "Renew it."


def test_the_doctor_goes_on_without_an_authority_that_it_can_read(tmp_path: Path) -> None:
    detent = CommandLine(tmp_path, "https://127.0.0.1:1")
    done = detent("doctor", "--data-dir", "data", "--json", DETENT_CA_FILE="missing.pem", DETENT_PORT="0")
    assert done.code == 1, done.err
    checks = {check["check"]: check for check in json.loads(done.out)["checks"]}
    assert "missing.pem cannot be read" in checks["api"]["found"]
    assert checks["certificate"]["status"] == "warn"
