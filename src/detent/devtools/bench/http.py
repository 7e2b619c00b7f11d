"""HTTP dispatch: calls of the HTTP target against a local server, compared with the bare client in the same run.

Both send the same request over the same number of connections, and take turns every few hundred requests, so that other
load on the machine slows both. The bare client only sends and reads; the target also checks every address, builds the
headers of the run, reads up to its cap and creates an outcome. The server is a separate process. With `signed`, every
call also has a header and a signature from secrets, filled in and masked as a worker does it.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import aiohttp
import msgspec

from detent.devtools.bench.turns import Send, Side, TakenInTurns, figures, ratios
from detent.domain.job import Definition, HttpTarget, JobSpec
from detent.domain.run import Call, Succeeded
from detent.domain.secret_ref import SecretRef
from detent.domain.target_access import PRIVATE_TOO
from detent.errors import Unavailable
from detent.runtime.envelope import MasterKeys, SecretPlace, generate_signing_key
from detent.store.secrets import SealedVersion
from detent.targets.http import HttpTargetRunner
from detent.targets.http_requests import headers_of
from detent.targets.policies import FixedPolicy
from detent.worker.execute import execute
from detent.worker.secrets import SecretValues

PAYLOAD = {"order": 1234, "text": "hello"}
BODY = b'{"order":1234,"text":"hello"}'

SIGNING_KEY = generate_signing_key()


@dataclass
class HttpResult:
    requests: int
    connections: int
    tls: bool
    signed: bool
    bare: Side
    target: Side
    ratio: float
    cpu_ratio: float
    """The ratio of CPU per request: on a busy machine it is more reliable than the ratio of the rates."""


async def bench_http(
    requests: int, connections: int, rounds: int, tls: bool, signed: bool, progress: Callable[[int], None]
) -> HttpResult:
    """`progress` counts requests of both sides: in all twice `requests` times `rounds`."""
    measuring = TakenInTurns(requests, connections, progress)
    bare, target = Side(), Side()
    async with (
        _serving(tls) as (url, trust),
        _bare(url, connections, trust) as send_bare,
        (_dispatching_signed if signed else _dispatching)(url, connections, trust) as dispatch,
    ):
        turns = [(send_bare, bare), (dispatch, target)]
        for _ in range(rounds):
            await measuring.round(turns)
            turns.reverse()
    medians = ratios(target, bare)
    return HttpResult(requests, connections, tls, signed, bare, target, *medians)


@asynccontextmanager
async def _bare(url: str, connections: int, trust: ssl.SSLContext | None) -> AsyncIterator[Send]:
    headers = headers_of(_call(url))
    connector = aiohttp.TCPConnector(limit=connections, ssl=trust if trust is not None else True)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send() -> None:
            async with session.post(url, data=BODY, headers=headers) as answer:
                if answer.status != 200 or await answer.read() != b"ok":
                    raise Unavailable(f"The server of the measurement answered {answer.status}.")

        yield send


@asynccontextmanager
async def _running(connections: int, trust: ssl.SSLContext | None) -> AsyncIterator[HttpTargetRunner]:
    runner = HttpTargetRunner(FixedPolicy(PRIVATE_TOO), connections=connections, trust=trust)
    try:
        yield runner
    finally:
        await runner.close()


def _check(outcome: object) -> None:
    if not isinstance(outcome, Succeeded):
        raise Unavailable(f"A call of the measurement did not succeed: {outcome}.")


@asynccontextmanager
async def _dispatching(url: str, connections: int, trust: ssl.SSLContext | None) -> AsyncIterator[Send]:
    call = _call(url)
    async with _running(connections, trust) as runner:

        async def send() -> None:
            _check(await runner(call))

        yield send


class _FixedSecrets:
    """A database with one secret of each name, which is a signing key."""

    def __init__(self, keys: MasterKeys) -> None:
        self._keys = keys

    async def values(self, wanted: Sequence[tuple[int, str]]) -> list[SealedVersion]:
        places = [SecretPlace(tenant, name, 1) for tenant, name in wanted]
        return [SealedVersion(place, self._keys.seal(place, SIGNING_KEY)) for place in places]

    async def signing(self) -> dict[int, str]:
        return {}


@asynccontextmanager
async def _dispatching_signed(url: str, connections: int, trust: ssl.SSLContext | None) -> AsyncIterator[Send]:
    target = HttpTarget(url=url, method="POST", headers={"Authorization": SecretRef("header")})
    spec = JobSpec(schedule="@daily", target=target, payload=PAYLOAD, signing=SecretRef("signing"))
    definition = Definition(UUID(int=1), "nightly-report", spec, refers=True)
    call = msgspec.structs.replace(_call(url), target=target)
    keys = MasterKeys([bytes(32)])
    secrets = SecretValues(_FixedSecrets(keys), keys)
    async with _running(connections, trust) as runner:

        async def send() -> None:
            filled = await secrets.fill(call, definition, datetime.now(UTC))
            _check(await execute(filled, {"http": runner}))

        yield send


def _call(url: str) -> Call:
    return Call(
        job_id="01987f2e-0000-7000-8000-000000000001",
        job="nightly-report",
        run_id="01987f2e-4c00-7000-8000-0000000004d2",
        scheduled_at=datetime(2026, 3, 1, 6, 30, tzinfo=UTC),
        attempt=1,
        idempotency_key="nightly-report:2026-03-01T06:30:00Z",
        token=8589934593,
        payload=PAYLOAD,
        target=HttpTarget(url=url, method="POST", headers={}),
        timeout_seconds=300.0,
    )


@asynccontextmanager
async def _serving(tls: bool) -> AsyncIterator[tuple[str, ssl.SSLContext | None]]:
    """The address of the server, and what its certificate is checked with."""
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as folder:
        certificate, key = Path(folder) / "certificate.pem", Path(folder) / "key.pem"
        trust = None
        if tls:
            await _make_certificate(certificate, key)
            trust = ssl.create_default_context(cafile=str(certificate))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "detent.devtools.bench.http_sink"), *((str(certificate), str(key)) if tls else ()),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            port = await process.stdout.readline()
            if not port:
                raise Unavailable("The server of the measurement did not start.")
            yield f"{'https' if tls else 'http'}://127.0.0.1:{int(port)}/hook", trust
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()


async def _make_certificate(certificate: Path, key: Path) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"),
            *("-keyout", str(key), "-out", str(certificate)),
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise Unavailable("There is no openssl to make a certificate with: install it, or leave out --tls.") from error
    _, said = await process.communicate()
    if process.returncode:
        raise Unavailable(f"openssl could not make a certificate: {said.decode(errors='replace').strip()[-300:]}")


def as_table(result: HttpResult) -> list[tuple[str, str]]:
    rounds = len(result.bare.per_second)
    kind = f"{'TLS' if result.tls else 'plain'}{', signed' * result.signed}"
    return [
        ("requests", f"{rounds} rounds of {result.requests:,} each, {kind}"),
        ("connections", str(result.connections)),
        ("bare client", figures(result.bare, "requests")),
        ("HTTP target", figures(result.target, "requests")),
        ("ratio", f"{result.ratio:.2f} by rate, {result.cpu_ratio:.2f} by CPU (medians of the rounds)"),
    ]
