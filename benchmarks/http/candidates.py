"""One small adapter for each client."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import urlsplit

import aiohttp
import httpcore
import httpcore2
import httpx
import httpx2
import msgspec
import niquests
from curl import CurlMulti
from plain import PlainClient
from request import BODY, CAP, CONNECTIONS, HEADERS

from detent.domain.documents import encode_json
from detent.domain.job import HttpTarget
from detent.domain.run import Call, Outcome, Succeeded
from detent.targets.guard import AddressGuard
from detent.targets.http import HttpTargetRunner
from detent.targets.http_requests import headers_of
from detent.targets.policies import FixedPolicy
from detent.targets.text import first_bytes, storable


def refusal(policy: AddressGuard, address: str) -> str | None:
    fault = policy.rules.fault(address, 80)
    return None if fault is None else fault.reason


class Candidate:
    name: ClassVar[str]
    share: ClassVar[float] = 1.0  # of the requests: the slow ones get fewer, so that a round ends

    def __init__(self, policy: AddressGuard) -> None:
        self.policy = policy

    async def start(self, url: str) -> None:
        self.url = url

    async def post(self) -> tuple[int, bytes]:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class Aiohttp(Candidate):
    name = "aiohttp"

    async def start(self, url: str) -> None:
        await super().start(url)
        connector = aiohttp.TCPConnector(socket_factory=self.policy.open_socket, limit=CONNECTIONS)
        self.session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
        )

    async def post(self) -> tuple[int, bytes]:
        async with self.session.post(self.url, data=BODY, headers=HEADERS, allow_redirects=False) as answer:
            return answer.status, await answer.content.read(CAP)

    async def close(self) -> None:
        await self.session.close()


class Pycurl(Candidate):
    name = "pycurl multi"

    async def start(self, url: str) -> None:
        await super().start(url)
        self.multi = CurlMulti(lambda address: refusal(self.policy, address), CONNECTIONS, CAP)

    async def post(self) -> tuple[int, bytes]:
        return await self.multi.post(self.url, HEADERS, BODY)

    async def close(self) -> None:
        self.multi.close()


class CheckedBackend:
    """Connects to nothing whose address was not checked; a name is resolved here first. Around a backend of httpcore or
    of httpcore2, which have the same interface and no class in common."""

    def __init__(self, inner: Any, policy: AddressGuard) -> None:
        self._inner = inner
        self._policy = policy

    async def connect_tcp(self, host: str, port: int, *arguments: Any, **options: Any) -> Any:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        address = str(found[0][4][0])
        sentence = refusal(self._policy, address)
        if sentence is not None:
            raise OSError(sentence)
        return await self._inner.connect_tcp(address, port, *arguments, **options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Httpx(Candidate):
    """It is slow with many connections: its pool looks at all of them whenever a request begins or ends."""

    name = "httpx"
    share = 0.1
    library: ClassVar[Any] = httpx
    core: ClassVar[Any] = httpcore

    async def start(self, url: str) -> None:
        await super().start(url)
        transport = self.library.AsyncHTTPTransport(trust_env=False)
        transport._pool = self.core.AsyncConnectionPool(
            max_connections=CONNECTIONS,
            max_keepalive_connections=CONNECTIONS,
            network_backend=CheckedBackend(self.core.AnyIOBackend(), self.policy),
        )
        self.client = self.library.AsyncClient(transport=transport, trust_env=False, timeout=None)

    async def post(self) -> tuple[int, bytes]:
        answer = await self.client.post(self.url, headers=HEADERS, content=BODY, follow_redirects=False)
        return answer.status_code, answer.content

    async def close(self) -> None:
        await self.client.aclose()


class Httpx2(Httpx):
    name = "httpx2"
    share = 0.2
    library = httpx2
    core = httpcore2


class Niquests(Candidate):
    name = "niquests, address not checked"  # it has no place for the check that names the address connected to
    share = 0.1

    async def start(self, url: str) -> None:
        await super().start(url)
        self.session = niquests.AsyncSession(pool_connections=1, pool_maxsize=CONNECTIONS)
        self.session.trust_env = False

    async def post(self) -> tuple[int, bytes]:
        answer = await self.session.post(self.url, headers=HEADERS, data=BODY, allow_redirects=False)
        return answer.status_code or 0, answer.content or b""

    async def close(self) -> None:
        await self.session.close()


class Plain(Candidate):
    name = "asyncio.Protocol (a ceiling)"

    async def start(self, url: str) -> None:
        await super().start(url)
        parts = urlsplit(url)
        self.client = PlainClient(self.policy.open_socket, str(parts.hostname), int(parts.port or 80), parts.path, CAP)

    async def post(self) -> tuple[int, bytes]:
        return await self.client.post(HEADERS, BODY)

    async def close(self) -> None:
        self.client.close()


class Target(Candidate):
    name = "detent's HTTP target, on aiohttp"

    async def start(self, url: str) -> None:
        await super().start(url)
        self.call = call_of(url)
        self.runner = HttpTargetRunner(FixedPolicy(self.policy.rules), max_result_bytes=CAP, connections=CONNECTIONS)

    async def post(self) -> tuple[int, bytes]:
        return told(await self.runner(self.call))

    async def close(self) -> None:
        await self.runner.close()


class PycurlTarget(Pycurl):
    """What the target would be on it: the headers of each run, and an outcome out of each answer."""

    name = "what it would be on pycurl multi"

    async def start(self, url: str) -> None:
        await super().start(url)
        self.call = call_of(url)

    async def post(self) -> tuple[int, bytes]:
        headers = headers_of(self.call)
        body = msgspec.json.encode(self.call.payload)
        status, data = await self.multi.post(self.call.target.url, headers, body)
        answer = {"status": status, "body": first_bytes(storable(data), CAP)}
        return told(Succeeded(encode_json(answer)))


def call_of(url: str) -> Call:
    return Call(
        job_id=HEADERS["Detent-Job-Id"],
        job=HEADERS["Detent-Job"],
        run_id=HEADERS["Detent-Run-Id"],
        scheduled_at=datetime(2026, 3, 1, 6, 30, tzinfo=UTC),
        attempt=1,
        idempotency_key=HEADERS["Idempotency-Key"],
        token=8589934593,
        payload=msgspec.json.decode(BODY),
        target=HttpTarget(url=url, method="POST", headers={}),
        timeout_seconds=300.0,
    )


def told(outcome: Outcome) -> tuple[int, bytes]:
    """The measurement of others is not burdened with reading what was stored, so neither is this."""
    if not isinstance(outcome, Succeeded):
        raise SystemExit(f"A call did not succeed: {outcome}")
    return 200, b"ok"


CANDIDATES: tuple[type[Candidate], ...] = (
    Aiohttp,
    Pycurl,
    Httpx,
    Httpx2,
    Niquests,
    Plain,
    Target,
    PycurlTarget,
)
