"""mTLS to targets: the client certificate is a secret, and nothing of it comes back."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from detent.contract.job import Job
from detent.domain.target_access import PRIVATE_TOO
from detent.errors import UsageError
from detent.jobs import JobOperations
from detent.jobs.secrets import SecretCommands
from detent.runtime.envelope import MasterKeys
from detent.store import Store
from detent.targets import certificates
from detent.targets.http import HttpTargetRunner
from detent.targets.policies import FixedPolicy
from detent.worker.secret_providers import SecretProviders
from detent.worker.secrets import SecretValues
from tests.secrets.test_calls import ran, spec
from tests.support.certificates import DAY, Authority, Issued, require
from tests.support.sessions import StartSession


class CertificateServer:
    """An HTTPS server that asks every client for a certificate of `clients`, and records whose it was."""

    def __init__(self, authority: Authority, clients: Authority, folder: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        files = folder / "server.pem", folder / "clients.pem"
        files[0].write_text(authority.issue().text)
        files[1].write_text(clients.certificate)
        self._context.load_cert_chain(files[0])
        self._context.load_verify_locations(files[1])
        self._context.verify_mode = ssl.CERT_REQUIRED
        self.callers: list[str] = []
        self.connections: set[object] = set()

    async def __aenter__(self) -> CertificateServer:
        application = web.Application()
        application.router.add_post("/", self._take)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context).start()
        self.url = f"https://127.0.0.1:{self._runner.addresses[0][1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        self.connections.add(request.transport)
        subject: Any = request.transport.get_extra_info("peercert")["subject"]
        self.callers.append(subject[0][0][1])
        return web.Response(text="thank you")


@pytest.fixture
def authority() -> Authority:
    return Authority("Servers")


@pytest.fixture
def clients() -> Authority:
    return Authority("Clients")


@pytest.fixture
async def server(authority: Authority, clients: Authority, tmp_path: Path) -> AsyncIterator[CertificateServer]:
    async with CertificateServer(authority, clients, tmp_path) as started:
        yield started


@pytest.fixture
async def runner() -> AsyncIterator[HttpTargetRunner]:
    made = HttpTargetRunner(FixedPolicy(PRIVATE_TOO))
    yield made
    await made.close()


@pytest.fixture
def commands(store: Store, keys: MasterKeys) -> SecretCommands:
    return SecretCommands(store, keys)


@pytest.fixture
async def working(start: StartSession, runner: HttpTargetRunner, store: Store, keys: MasterKeys) -> SecretValues:
    """A worker that fills in secrets."""
    values = SecretValues(store.secrets, keys, SecretProviders())
    await start(runner, secrets=values)
    return values


async def registered(store: Store, server: CertificateServer, **tls: Any) -> Job:
    target = {"type": "http", "url": server.url, "tls": tls}
    (job,) = await JobOperations(store).registration.add([spec(target=target)])
    return job


def parts_of(issued: Issued) -> list[str]:
    """Lines of the key that must be nowhere."""
    return [line for line in issued.key.splitlines() if not line.startswith("-")]


async def test_a_job_shows_the_certificate_that_is_in_a_secret(
    store: Store,
    working: SecretValues,
    server: CertificateServer,
    commands: SecretCommands,
    authority: Authority,
    clients: Authority,
) -> None:
    await commands.set(1, "ledger-client", clients.issue("detent").text)
    await commands.set(1, "ledger-ca", authority.certificate)
    by_text = await registered(store, server, client_certificate={"secret": "ledger-client"}, ca=authority.certificate)
    by_secret = await registered(
        store, server, client_certificate={"secret": "ledger-client"}, ca={"secret": "ledger-ca"}
    )
    for job in (by_text, by_secret, by_text):
        ended = await ran(store, job)
        assert ended["status"] == "succeeded", ended
    assert server.callers == ["detent"] * 3


async def test_a_new_certificate_is_shown_by_the_next_call(
    store: Store,
    working: SecretValues,
    server: CertificateServer,
    commands: SecretCommands,
    authority: Authority,
    clients: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("detent.worker.secrets.VALID_SECONDS", 0.0)
    await commands.set(1, "client", clients.issue("first").text)
    job = await registered(store, server, client_certificate={"secret": "client"}, ca=authority.certificate)
    await ran(store, job)
    await commands.set(1, "client", clients.issue("second").text)
    await ran(store, job)
    assert server.callers == ["first", "second"]


async def test_a_certificate_that_the_server_does_not_accept_fails_the_attempt_without_telling_it(
    store: Store,
    working: SecretValues,
    server: CertificateServer,
    commands: SecretCommands,
    authority: Authority,
    capfd: pytest.CaptureFixture[str],
) -> None:
    wrong = authority.issue("of another authority")
    await commands.set(1, "client", wrong.text)
    job = await registered(store, server, client_certificate={"secret": "client"}, ca=authority.certificate)
    ended = await ran(store, job)
    assert ended["status"] == "dead"
    (error,) = ended["errors"]
    assert "client certificate" in error
    told = json.dumps(ended) + "".join(capfd.readouterr())
    assert not [part for part in ("PRIVATE KEY", *parts_of(wrong)) if part in told]
    assert server.callers == []


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("expired", "the certificate expired on "),
        ("mixed", "the private key does not belong to the certificate"),
        ("no key", "there is no private key in PEM form"),
        ("encrypted", "the private key is encrypted"),
        ("text", "there is no certificate in PEM form"),
    ],
)
async def test_a_secret_that_is_no_usable_certificate_fails_the_attempt_without_telling_it(
    store: Store,
    working: SecretValues,
    server: CertificateServer,
    commands: SecretCommands,
    authority: Authority,
    clients: Authority,
    kind: str,
    why: str,
) -> None:
    good, other = clients.issue("detent"), clients.issue("other")
    value = {
        "expired": clients.issue("old", begins=-2 * DAY, lasts=-DAY).text,
        "mixed": good.certificate + other.key,
        "no key": good.certificate,
        "encrypted": good.certificate + good.encrypted(),
        "text": "not a certificate at all",
    }[kind]
    await commands.set(1, "client", value)
    job = await registered(store, server, client_certificate={"secret": "client"}, ca=authority.certificate)
    ended = await ran(store, job)
    assert ended["status"] == "dead"
    assert f"target.tls.client_certificate could not be used: {why}" in ended["errors"][0]
    assert not [part for part in ("PRIVATE", *parts_of(other)) if part in json.dumps(ended)]
    assert server.callers == []


async def test_what_a_server_says_of_the_certificate_is_reported(
    store: Store,
    working: SecretValues,
    commands: SecretCommands,
    authority: Authority,
    clients: Authority,
    tmp_path: Path,
) -> None:
    """OpenSSL's own server sends an alert; others, such as the one above, just close the connection."""
    require("openssl")
    (tmp_path / "server.pem").write_text(authority.issue().text)
    (tmp_path / "clients.pem").write_text(clients.certificate)
    options = ("-accept", "127.0.0.1:0", "-cert", "server.pem", "-CAfile", "clients.pem", "-Verify", "2")
    process = await asyncio.create_subprocess_exec(
        *("openssl", "s_server", *options, "-verify_return_error", "-www"),
        cwd=tmp_path,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while not (line := await process.stdout.readline()).startswith(b"ACCEPT"):
                assert line, "the server ended"
        url = f"https://127.0.0.1:{line.decode().strip().rpartition(':')[2]}/"
        await commands.set(1, "client", authority.issue("of another authority").text)
        target = {
            "type": "http",
            "url": url,
            "method": "GET",
            "tls": {"client_certificate": {"secret": "client"}, "ca": authority.certificate},
        }
        (job,) = await JobOperations(store).registration.add([spec(target=target)])
        ended = await ran(store, job)
        assert "did not accept the client certificate of the call: unknown ca." in ended["errors"][0]
    finally:
        process.kill()
        await process.wait()


async def test_a_server_of_another_authority_is_not_called(
    store: Store, working: SecretValues, server: CertificateServer, commands: SecretCommands, clients: Authority
) -> None:
    await commands.set(1, "client", clients.issue("detent").text)
    job = await registered(store, server, client_certificate={"secret": "client"}, ca=clients.certificate)
    ended = await ran(store, job)
    assert "was not accepted" in ended["errors"][0]
    assert server.callers == []


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        ({"url": "http://a.example/", "tls": {"ca": "-----BEGIN CERTIFICATE-----"}}, "/target/tls"),
        ({"url": "https://a.example/", "tls": {}}, "/target/tls"),
        (
            {"url": "https://a.example/", "tls": {"client_certificate": "-----BEGIN PRIVATE KEY-----"}},
            "/target/tls/client_certificate",
        ),
        ({"url": "https://a.example/", "tls": {"ca": "no certificate"}}, "/target/tls/ca"),
        ({"url": "https://a.example/", "tls": {"ca": "-----BEGIN RSA PRIVATE KEY-----"}}, "/target/tls/ca"),
        (
            {"url": "https://a.example/", "tls": {"client_certificate": {"secret": "missing"}}},
            "/target/tls/client_certificate/secret",
        ),
        ({"url": "https://a.example/", "tls": {"key": "x"}}, "/target/tls/key"),
    ],
)
async def test_what_cannot_be_used_is_refused_at_registration(
    store: Store, target: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(UsageError) as caught:
        await JobOperations(store).registration.add([spec(target={"type": "http", **target})])
    assert caught.value.pointer == pointer
    assert "PRIVATE KEY" not in caught.value.message


async def test_a_private_key_is_forgotten_when_it_is_not_used(
    authority: Authority, clients: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    from detent.domain.job import TargetTls
    from tests.support.waiting import until

    monkeypatch.setattr(certificates, "KEPT_SECONDS", 0.05)
    monkeypatch.setattr(certificates, "MOST_CONTEXTS", 3)
    kept = certificates.TargetCertificates()
    made = [TargetTls(clients.issue(f"client {number}").text, authority.certificate) for number in range(5)]
    contexts = [await kept.context(tls) for tls in made]
    assert all(isinstance(context, ssl.SSLContext) for context in contexts)
    assert len(kept._kept) <= 3
    await until(lambda: not kept._kept)
    kept.close()
