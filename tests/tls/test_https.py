"""HTTPS as real clients see it: curl, openssl and aiohttp."""

from __future__ import annotations

import asyncio
import json
import ssl

import aiohttp
import pytest

from tests.support.certificates import Authority
from tests.support.waiting import until
from tests.tls.tls_server import CertificateFolder, Serving, run_program, serving


async def shown_serial(served: Serving, context: ssl.SSLContext) -> int:
    """The serial number of the certificate that the server shows on a new connection."""
    _, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert()
    writer.transport.abort()
    return int(found["serialNumber"], 16)


async def test_curl_gets_an_answer_over_https(folder: CertificateFolder) -> None:
    async with serving(folder) as served:
        assert served.server.url == f"https://127.0.0.1:{served.port}"
        code, printed = await run_program("curl", "-sS", "--cacert", str(folder.ca), f"{served.server.url}/livez")
        assert (code, printed) == (0, '{"status":"ok"}')


async def test_openssl_agrees_on_tls_1_2_and_1_3_and_on_nothing_older(folder: CertificateFolder) -> None:
    async with serving(folder) as served:
        connect = ("openssl", "s_client", "-connect", f"127.0.0.1:{served.port}", "-CAfile", str(folder.ca))
        for version in ("-tls1_2", "-tls1_3"):
            code, printed = await run_program(*connect, version)
            assert code == 0 and "Verify return code: 0 (ok)" in printed, printed
        code, printed = await run_program(*connect, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0")
        assert code != 0 and "alert protocol version" in printed, printed


async def test_openssl_cannot_renegotiate(folder: CertificateFolder) -> None:
    async with serving(folder) as served:
        connect = ("openssl", "s_client", "-connect", f"127.0.0.1:{served.port}", "-tls1_2")
        _, printed = await run_program(*connect, sends=b"R\n")
        assert "no renegotiation" in printed, printed


async def test_many_requests_share_a_connection_of_aiohttp(folder: CertificateFolder) -> None:
    async with serving(folder) as served, aiohttp.ClientSession() as session:
        for _ in range(20):
            async with session.get(f"{served.server.url}/metrics", ssl=folder.client()) as answer:
                assert answer.status == 200 and b"detent_build_info" in await answer.read()


async def test_browsers_are_told_to_use_https_only_where_other_machines_can_connect(folder: CertificateFolder) -> None:
    for host, expected in (("127.0.0.1", None), ("0.0.0.0", "max-age=31536000")):
        async with serving(folder, host) as served, aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{served.port}/livez"
            async with session.get(url, ssl=folder.client()) as answer:
                assert answer.headers.get("Strict-Transport-Security") == expected


async def test_a_client_without_tls_is_told_to_use_https(folder: CertificateFolder) -> None:
    async with serving(folder) as served:
        _, printed = await run_program("curl", "-sS", f"http://127.0.0.1:{served.port}/livez")
        assert "use an address that begins with https://" in json.loads(printed)["detail"]


async def test_a_client_needs_a_certificate_of_the_authorities(folder: CertificateFolder) -> None:
    others = Authority("Clients")
    folder.client_ca.write_text(others.certificate)
    async with serving(folder, tls_client_ca=folder.client_ca) as served, aiohttp.ClientSession() as session:
        url = f"{served.server.url}/livez"
        with pytest.raises(aiohttp.ClientError):
            await session.get(url, ssl=folder.client())
        with pytest.raises(aiohttp.ClientError):
            await session.get(url, ssl=folder.client(folder.authority.issue("of another authority")))
        async with session.get(url, ssl=folder.client(others.issue("ada"))) as answer:
            assert answer.status == 200
        code, printed = await run_program("curl", "-sS", "--cacert", str(folder.ca), url)
        assert code != 0 and "alert certificate required" in printed, printed
        assert set(served.counts) == {"TLS: peer did not return a certificate", "TLS: certificate verify failed"}
        assert len(served.server.connections.connections) == 1


async def test_a_new_certificate_is_used_without_closing_connections(folder: CertificateFolder) -> None:
    async with serving(folder) as served, aiohttp.ClientSession() as session:
        context, url = folder.client(), f"{served.server.url}/livez"
        async with session.get(url, ssl=context):
            kept = set(served.server.connections.connections)
            renewed = folder.authority.issue()
            folder.put(renewed)
            served.tls.reload()

            async def shows_new() -> bool:
                return await shown_serial(served, folder.client()) == renewed.serial

            await until(shows_new)
        async with session.get(url, ssl=context) as answer:  # on the connection of before
            assert answer.status == 200
        assert kept <= set(served.server.connections.connections)


async def test_a_changed_file_is_noticed_without_a_signal(
    folder: CertificateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.node.tls.LOOK_SECONDS", 0.02)
    async with serving(folder) as served:
        renewed = folder.authority.issue()
        folder.put(renewed)

        async def shows_new() -> bool:
            return await shown_serial(served, folder.client()) == renewed.serial

        await until(shows_new)


async def test_a_bad_new_pair_is_logged_and_the_old_one_stays(
    folder: CertificateFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("detent.node.tls.LOOK_SECONDS", 0.02)
    async with serving(folder) as served:
        logged = ""

        async def log_has(sentence: str) -> None:
            nonlocal logged

            def found() -> bool:
                nonlocal logged
                logged += "".join(capsys.readouterr())
                return sentence in logged

            await until(found, what=sentence)

        folder.key.write_text(folder.authority.issue().key)
        await log_has("the private key does not belong to the certificate")
        assert await shown_serial(served, folder.client()) == folder.issued.serial
        folder.cert.unlink()
        await log_has("cannot be read")
        assert await shown_serial(served, folder.client()) == folder.issued.serial
        assert "PRIVATE KEY" not in logged
        folder.put(folder.authority.issue())
        await log_has("certificate reloaded")
