"""A server with TLS, and its files."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from detent.api.health import create_probes
from detent.node.server import ApiServer
from detent.node.tls import ServerTls, server_tls
from detent.settings.settings import Settings
from detent.telemetry.health import Check
from detent.telemetry.metrics import Metrics
from tests.support.certificates import Authority, Issued, require


class CertificateFolder:
    """The files that the settings of a server name."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.authority = authority
        self.ca, self.cert, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        self.client_ca = folder / "client-ca.pem"
        self.ca.write_text(authority.certificate)
        self.issued = authority.issue()
        self.put(self.issued)

    def put(self, issued: Issued) -> None:
        self.cert.write_text(issued.certificate)
        self.key.write_text(issued.key)

    def client(self, issued: Issued | None = None) -> ssl.SSLContext:
        """For a client that trusts the authority and shows this certificate."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if issued is not None:
            both = self.ca.with_name("client.pem")
            both.write_text(issued.text)
            context.load_cert_chain(both)
        return context

    @property
    def settings(self) -> dict[str, Any]:
        return {"tls_cert": self.cert, "tls_key": self.key}


class Serving(NamedTuple):
    server: ApiServer
    tls: ServerTls
    metrics: Metrics

    @property
    def counts(self) -> Counter[str]:
        """The connections that were closed or refused, by reason."""
        return self.server.connections._refused

    @property
    def port(self) -> int:
        return int(self.server.url.rpartition(":")[2])


@asynccontextmanager
async def serving(files: CertificateFolder, host: str = "127.0.0.1", **settings: Any) -> AsyncIterator[Serving]:
    """Probes behind TLS: they need no database."""
    chosen, metrics = Settings(host=host, **{**files.settings, **settings}), Metrics()
    app = create_probes(_ready, metrics)
    async with (
        server_tls(chosen, metrics) as tls,
        ApiServer(app, host, 0, settings=chosen, tls=tls) as server,
    ):
        server.connections._log_next = inf  # or the counts would start again after they were logged
        yield Serving(server, tls, metrics)


async def _ready() -> dict[str, Check]:
    return {"database": Check(True, "Always ready.")}


async def run_program(*command: str, sends: bytes = b"") -> tuple[int, str]:
    """Its exit code, and what it printed."""
    require(command[0])
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        printed, _ = await process.communicate(sends)
    assert process.returncode is not None
    return process.returncode, printed.decode("utf-8", "replace")
