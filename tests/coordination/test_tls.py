"""etcds:// and rediss://: the certificate is checked, against the file that SSL_CERT_FILE names."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import Etcd, Redis, Server, require_servers

CAMPAIGN = """
import asyncio, sys
from uuid import uuid4
from detent.cluster.coordinators.choose import choose
from detent.cluster.coordinators.services import Candidate
from detent.store import Database

async def main(named):
    coordinator = choose(named, Candidate(1, uuid4(), 20.0), Database("postgresql://nowhere"))
    try:
        print(sorted(await coordinator.campaign(range(4))))
    finally:
        await coordinator.close()

asyncio.run(main(sys.argv[1]))
"""


class Encrypted(Server):
    def connect(self) -> socket.socket:
        context = ssl.create_default_context(cafile=str(self.folder / "certificate.pem"))
        return context.wrap_socket(super().connect(), server_hostname="127.0.0.1")


class EncryptedEtcd(Encrypted, Etcd):
    @property
    def url(self) -> str:
        return f"etcds://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        plain = f"http://127.0.0.1:{self.port}"
        flags = [flag.replace(plain, plain.replace("http", "https")) for flag in super().command()]
        return [*flags, "--cert-file=certificate.pem", "--key-file=key.pem"]


class EncryptedRedis(Encrypted, Redis):
    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        program, _, port, *rest = super().command()
        files = (
            "--tls-cert-file",
            "certificate.pem",
            "--tls-key-file",
            "key.pem",
            "--tls-ca-cert-file",
            "certificate.pem",
        )
        return [program, "--port", "0", "--tls-port", port, *rest, *files, "--tls-auth-clients", "no"]


@pytest.fixture(params=[EncryptedEtcd, EncryptedRedis])
def encrypted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    require_servers()
    if shutil.which("openssl") is None:
        pytest.skip("openssl must be installed: apt-get install openssl")
    certificate = ("-keyout", "key.pem", "-out", "certificate.pem", "-subj", "/CN=detent", "-days", "2", "-nodes")
    subject = ("-addext", "subjectAltName=IP:127.0.0.1")
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subprocess.run([*make, *certificate, *subject], cwd=tmp_path, check=True, capture_output=True)
    server: Server = request.param(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def test_only_a_certificate_that_is_trusted_will_do(encrypted: Server) -> None:
    def campaign(**variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CAMPAIGN, encrypted.url]
        return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)

    trusted = campaign(SSL_CERT_FILE=str(encrypted.folder / "certificate.pem"))
    assert trusted.stdout.strip() == "[0, 1, 2, 3]", trusted.stderr
    assert "certificate verify failed" in campaign().stderr.lower()
