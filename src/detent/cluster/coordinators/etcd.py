"""Nominations in etcd: one key per partition, attached to the node's lease, created only if it does not exist.

A plain put overwrites an existing key. A transaction that requires a create revision of 0 does not, so only one node
wins. The create revision that etcd then assigns is the number of the nomination (see `coordinator.py`): etcd counts
every write, and continues to count after a key is deleted.

This uses the JSON gateway that every etcd from 3.4 on has on its client port. It sends 64-bit numbers as text, keys
and values in base64, and leaves out what is zero or empty.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import Any
from urllib.parse import SplitResult, unquote

import aiohttp

from detent.cluster.coordinators.services import Candidate, answering, ignoring_errors_on_close
from detent.domain.identity import PARTITIONS, node_name
from detent.errors import Unavailable

PORT = 2379
PREFIX = "/detent"
# etcd allows 128 operations in one transaction, and a nested transaction counts as one, too.
OPERATIONS = 100
UNAUTHENTICATED = 401


class EtcdGateway:
    """The members of one etcd cluster, tried in turn until one answers; that one is tried first the next time."""

    def __init__(self, endpoints: Sequence[str], limit: float, user: str = "", password: str = "") -> None:
        self._endpoints = deque(endpoints)
        self._limit = limit
        self._user = user
        self._password = password
        self._token = ""
        self._http: aiohttp.ClientSession | None = None

    async def ask(self, path: str, question: Mapping[str, Any]) -> dict[str, Any]:
        async with answering("etcd", self._limit):
            failure: Exception | None = None
            for _ in range(len(self._endpoints)):
                try:
                    async with asyncio.timeout(self._limit / len(self._endpoints)):
                        return await self._ask(path, question)
                except (aiohttp.ClientError, OSError, TimeoutError, Unavailable, ValueError) as error:
                    failure = failure or error
                    self._endpoints.rotate(-1)
        raise Unavailable(f"The request to etcd failed: {str(failure) or type(failure).__name__}.") from failure

    async def _ask(self, path: str, question: Mapping[str, Any]) -> dict[str, Any]:
        if self._user and not self._token:
            await self._authenticate()
        status, answer = await self._post(path, question)
        if status == UNAUTHENTICATED and self._user:  # tokens expire, and a restarted member has none
            await self._authenticate()
            status, answer = await self._post(path, question)
        if status != 200:
            raise Unavailable(str(answer.get("message") or answer.get("error") or f"status {status}"))
        return answer

    async def _authenticate(self) -> None:
        self._token = ""
        status, answer = await self._post("/v3/auth/authenticate", {"name": self._user, "password": self._password})
        if status != 200 or "token" not in answer:
            raise Unavailable(f"it rejected the user {self._user}")
        self._token = answer["token"]

    async def _post(self, path: str, question: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        if self._http is None:
            self._http = aiohttp.ClientSession()
        headers = {"Authorization": self._token} if self._token else {}
        async with self._http.post(self._endpoints[0] + path, json=question, headers=headers) as response:
            text = await response.text()
        # A streaming endpoint (keepalive) returns one JSON document per line; only the first is needed.
        answer = json.loads(text.partition("\n")[0])
        if not isinstance(answer, dict):
            raise ValueError("the answer is not a JSON object")
        return response.status, answer

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()


class EtcdCoordinator:
    """See `Coordinator` for the attributes."""

    name = "etcd"
    renews = True
    numbered = True

    def __init__(self, address: SplitResult, candidate: Candidate) -> None:
        scheme = "https" if address.scheme == "etcds" else "http"
        login, _, hosts = address.netloc.rpartition("@")
        user, _, password = login.partition(":")
        endpoints = [f"{scheme}://{with_port(host, PORT)}" for host in hosts.split(",")]
        self._gateway = EtcdGateway(endpoints, candidate.limit, unquote(user), unquote(password))
        self._folder = f"{address.path.rstrip('/') or PREFIX}/{candidate.cluster}/schedulers/"
        self._me = encoded(node_name(candidate.node))
        self._ttl = ceil(candidate.ttl)
        self._limit = candidate.limit
        self._lease = 0
        self._held: dict[int, int] = {}

    async def open(self) -> None:
        await self._renew()

    async def campaign(self, wanted: Collection[int]) -> dict[int, int | None]:
        async with answering("etcd", self._limit):
            await self._renew()
            self._held, others = await self._look()
            await self._withdraw({partition: self._held[partition] for partition in self._held.keys() - set(wanted)})
            await self._campaign(sorted(set(wanted) - self._held.keys() - others))
        return dict(self._held)

    async def resign(self, partitions: Collection[int]) -> None:
        await self._withdraw({partition: self._held[partition] for partition in partitions if partition in self._held})

    async def close(self) -> None:
        with ignoring_errors_on_close(self.name):
            if self._lease:
                await self._gateway.ask("/v3/lease/revoke", {"ID": str(self._lease)})
        with ignoring_errors_on_close(self.name):
            await self._gateway.close()

    async def _renew(self) -> None:
        """Keep the lease alive, or get a new one: when a lease ends, etcd deletes all its keys."""
        if self._lease:
            answer = await self._gateway.ask("/v3/lease/keepalive", {"ID": str(self._lease)})
            if int(answer.get("result", {}).get("TTL", 0)) > 0:
                return
            self._lease, self._held = 0, {}
        self._lease = int((await self._gateway.ask("/v3/lease/grant", {"TTL": str(self._ttl)}))["ID"])

    async def _look(self) -> tuple[dict[int, int], set[int]]:
        """The partitions under our lease with their create revisions, and those of others."""
        end = self._folder[:-1] + chr(ord("/") + 1)
        question = {"key": encoded(self._folder), "range_end": encoded(end), "keys_only": True}
        rows = (await self._gateway.ask("/v3/kv/range", question)).get("kvs", [])
        found = {row["key"]: row for row in rows}
        there = {partition: found[key] for partition in range(PARTITIONS) if (key := self._key(partition)) in found}
        ours = {
            partition: int(row["create_revision"])
            for partition, row in there.items()
            if int(row.get("lease", 0)) == self._lease
        }
        return ours, there.keys() - ours.keys()

    def _key(self, partition: int) -> str:
        return encoded(f"{self._folder}partition-{partition}/leader")

    async def _campaign(self, partitions: Sequence[int]) -> None:
        """Create the keys that do not exist, with this node's name. All keys that one transaction creates have its
        revision."""
        for batch in batches(partitions):
            puts = [
                self._if_revision(
                    partition,
                    0,
                    {"request_put": {"key": self._key(partition), "value": self._me, "lease": str(self._lease)}},
                )
                for partition in batch
            ]
            answer = await self._gateway.ask("/v3/kv/txn", {"success": puts})
            revision = int(answer["header"]["revision"])
            for partition, response in zip(batch, answer["responses"], strict=True):
                if response["response_txn"].get("succeeded"):
                    self._held[partition] = revision

    async def _withdraw(self, held: Mapping[int, int]) -> None:
        for batch in batches(list(held)):
            deletes = [
                self._if_revision(partition, held[partition], {"request_delete_range": {"key": self._key(partition)}})
                for partition in batch
            ]
            await self._gateway.ask("/v3/kv/txn", {"success": deletes})
            for partition in batch:
                del self._held[partition]

    def _if_revision(self, partition: int, revision: int, then: Mapping[str, Any]) -> dict[str, Any]:
        condition = {
            "key": self._key(partition), "target": "CREATE", "result": "EQUAL", "create_revision": str(revision)
        }  # fmt: skip
        return {"request_txn": {"compare": [condition], "success": [then]}}


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def batches(partitions: Sequence[int]) -> Iterator[list[int]]:
    rest = iter(partitions)
    while batch := list(islice(rest, OPERATIONS)):
        yield batch


def with_port(host: str, port: int) -> str:
    return host if host.rpartition(":")[2].isdigit() else f"{host}:{port}"
