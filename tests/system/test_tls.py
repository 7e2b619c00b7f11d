"""A real node that speaks HTTPS: its clients, its cookies, a renewal on SIGHUP, and what keeps it from starting."""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.support.certificates import DAY, Authority, Issued
from tests.support.processes import PRESENT, Node, Nodes
from tests.support.waiting import until
from tests.system.test_start_errors import USAGE, refusal


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(folder: Path, authority: Authority) -> dict[str, str]:
    (folder / "ca.pem").write_text(authority.certificate)
    put(folder, authority.issue())
    return {"DETENT_TLS_CERT": str(folder / "server.pem"), "DETENT_TLS_KEY": str(folder / "server.key")}


def put(folder: Path, issued: Issued) -> None:
    (folder / "server.pem").write_text(issued.certificate)
    (folder / "server.key").write_text(issued.key)


def reached(cluster: Nodes) -> dict[str, Any]:
    return {name: value for name, value in cluster.variables.items() if "DATABASE" in name}


async def shown(node: Node) -> int:
    """The serial number of the certificate that a node shows."""
    port = urlsplit(node.url).port
    assert port is not None
    text = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    return Issued(text, "").serial


async def test_a_node_serves_https_and_reads_a_new_certificate_on_sighup(
    cluster: Nodes, folder: Path, authority: Authority, files: dict[str, str]
) -> None:
    node = await cluster.start("api", python=PRESENT, **files)
    assert node.url.startswith("https://")
    trust: dict[str, Any] = {"DETENT_API_URL": node.url, "DETENT_CA_FILE": str(folder / "ca.pem")}
    code, printed = await cluster.run("job", "list", **trust)
    assert code == 0, printed
    code, printed = await cluster.run("job", "list", DETENT_API_URL=node.url)
    assert code == 7 and "its certificate is not trusted" in printed, printed

    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        async with session.get(f"{node.url}/livez") as answer:
            assert answer.status == 200
        (folder / "server.key").write_text("no key")
        node.send(signal.SIGHUP)
        await node.says("the certificate was not reloaded, so the one before stays in use")
        renewed = authority.issue()
        put(folder, renewed)
        node.send(signal.SIGHUP)
        await node.says("certificate reloaded")
        assert await shown(node) == renewed.serial
        async with session.get(f"{node.url}/livez") as answer:  # with the connection of before, or a new one
            assert answer.status == 200
    node.send(signal.SIGTERM)
    assert await node.ended() == 0


async def test_the_cookie_of_the_dashboard_is_sent_over_tls_only(
    cluster: Nodes, folder: Path, files: dict[str, str]
) -> None:
    code, printed = await cluster.run("key", "create", "--scope", "admin", "--local", **reached(cluster))
    key = re.search(r"dtn_\w+", printed)
    assert code == 0 and key is not None, printed
    node = await cluster.start("api", python=PRESENT, **files)
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.post(f"{node.url}/login", data={"key": key[0], "next": "/"}, allow_redirects=False) as answer,
    ):
        assert answer.status in (302, 303), await answer.text()
        assert "; Secure" in answer.headers["Set-Cookie"]


async def test_a_client_without_a_certificate_is_refused(
    cluster: Nodes, folder: Path, authority: Authority, files: dict[str, str]
) -> None:
    node = await cluster.start("api", "--tls-client-ca", str(folder / "ca.pem"), python=PRESENT, **files)
    trust: dict[str, Any] = {"DETENT_API_URL": node.url, "DETENT_CA_FILE": str(folder / "ca.pem")}
    code, printed = await cluster.run("job", "list", **trust)
    assert code == 7 and "client certificate" in printed, printed
    mine = authority.issue("ada")
    (folder / "ada.pem").write_text(mine.text)
    code, printed = await cluster.run("job", "list", "--client-cert", str(folder / "ada.pem"), **trust)
    assert code == 0, printed
    await until(lambda: "peer did not return a certificate" in node.text)


async def test_a_node_with_an_expired_certificate_does_not_start(
    nodes: Nodes, folder: Path, authority: Authority, files: dict[str, str]
) -> None:
    put(folder, authority.issue(begins=-2 * DAY, lasts=-DAY))
    sentence = await refusal(nodes, USAGE, "serve", **files)
    assert sentence.startswith(f"tls_cert is {folder / 'server.pem'}: the certificate expired on ")


@pytest.mark.parametrize("arguments", [["--tls-cert", "a.pem"], ["--demo", "--tls-cert", "a.pem", "--tls-key", "b"]])
async def test_half_of_the_settings_are_refused(nodes: Nodes, arguments: list[str]) -> None:
    sentence = await refusal(nodes, USAGE, "serve", *arguments)
    assert "tls" in sentence
