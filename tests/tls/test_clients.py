"""The clients of detent over HTTPS: whom they trust, what they show, and what they say when that fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.client import AsyncClient, Client
from detent.errors import Unavailable, UsageError
from tests.support.certificates import Authority, Issued
from tests.tls.tls_server import CertificateFolder, Serving, serving


async def ask(served: Serving, **files: Any) -> str:
    """What the blocking client gets; the server runs on this loop."""

    def work() -> str:
        with Client(served.server.url, **files) as client:
            return str(client.readiness()["status"])

    return await asyncio.to_thread(work)


async def ask_async(served: Serving, **files: Any) -> str:
    async with AsyncClient(served.server.url, **files) as client:
        return str((await client.readiness())["status"])


BOTH = pytest.mark.parametrize("asking", [ask, ask_async], ids=["blocking", "async"])


def written(folder: CertificateFolder, issued: Issued) -> dict[str, Any]:
    certificate, key = folder.ca.with_name("me.pem"), folder.ca.with_name("me.key")
    certificate.write_text(issued.certificate)
    key.write_text(issued.key)
    return {"client_cert": certificate, "client_key": key}


@BOTH
async def test_a_server_is_trusted_by_its_authority_only(folder: CertificateFolder, asking: Any) -> None:
    async with serving(folder) as served:
        assert await asking(served, ca_file=folder.ca) == "ready"
        with pytest.raises(Unavailable, match=r"its certificate is not trusted .* name its authority with --ca-file"):
            await asking(served)
        other = folder.ca.with_name("other.pem")
        other.write_text(Authority().certificate)
        with pytest.raises(Unavailable, match="its certificate is not trusted"):
            await asking(served, ca_file=other)


@BOTH
async def test_a_client_shows_its_certificate(folder: CertificateFolder, asking: Any) -> None:
    clients = Authority("Clients")
    folder.client_ca.write_text(clients.certificate)
    async with serving(folder, tls_client_ca=folder.client_ca) as served:
        files = written(folder, clients.issue("ada"))
        assert await asking(served, ca_file=folder.ca, **files) == "ready"
        with pytest.raises(Unavailable, match="client certificate"):
            await asking(served, ca_file=folder.ca)


@BOTH
async def test_the_files_come_from_the_environment(
    folder: CertificateFolder, asking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.client_ca.write_text(folder.authority.certificate)
    both = folder.ca.with_name("both.pem")
    both.write_text(folder.authority.issue("ada").text)
    monkeypatch.setenv("DETENT_CA_FILE", str(folder.ca))
    monkeypatch.setenv("DETENT_CLIENT_CERT", str(both))
    async with serving(folder, tls_client_ca=folder.client_ca) as served:
        assert await asking(served) == "ready"


@BOTH
async def test_an_address_without_tls_is_named(folder: CertificateFolder, asking: Any) -> None:
    async with serving(folder) as served:
        served.server.url = served.server.url.replace("https", "http")
        with pytest.raises(UsageError, match="use an address that begins with https"):
            await asking(served)


def test_files_that_cannot_be_used_are_named(folder: CertificateFolder) -> None:
    files = written(folder, folder.authority.issue("ada"))
    files["client_key"].write_text(folder.authority.issue().key)
    with pytest.raises(UsageError, match=r"me\.key cannot be used: the private key does not belong"):
        Client("https://127.0.0.1:1", **files)
    with pytest.raises(UsageError, match="cannot be read"):
        Client("https://127.0.0.1:1", ca_file=folder.ca.with_name("missing.pem"))
    with pytest.raises(UsageError, match="without a certificate"):
        Client("https://127.0.0.1:1", client_key=files["client_key"])
