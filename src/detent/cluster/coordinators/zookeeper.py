"""Nominations in ZooKeeper: an ephemeral znode per partition, which is deleted when the session of its node ends.

The number of a nomination is the transaction that created it, its czxid: ZooKeeper counts all writes with one number.

kazoo works in its own threads, which keep its session alive as long as the process runs. That is too long: a scheduler
that no longer campaigns must lose its nominations. So another thread ends the session after one lease time without a
campaign. All code that waits for kazoo runs in a thread too, with a time limit.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import SplitResult

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState

from detent.cluster.coordinators.services import Candidate, answering, ignoring_errors_on_close
from detent.domain.identity import PARTITIONS, node_name
from detent.errors import Unavailable
from detent.runtime.clock import monotonic

# kazoo logs every attempt to reach a server. The caller logs once that the service does not answer.
quiet = logging.getLogger("detent.zookeeper")
quiet.setLevel(logging.CRITICAL)

ENDED = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
SHORTEST_LOOK = 0.1

Result = TypeVar("Result")


class ZooKeeperCoordinator:
    name = "zookeeper"
    renews = True
    numbered = True

    def __init__(self, address: SplitResult, candidate: Candidate) -> None:
        self._hosts = address.netloc
        self._folder = f"{address.path.rstrip('/') or f'/detent/{candidate.cluster}'}/schedulers"
        self._has_folders = False
        self._candidate = candidate
        self._me = node_name(candidate.node).encode()
        self._asked: set[int] = set()
        self._client: Any = None
        self._lock = threading.Lock()
        self._silent_from = 0.0
        self._closed = threading.Event()
        self._worker = ThreadPoolExecutor(1, "detent-zookeeper")
        self._watch = threading.Thread(target=self._end_when_silent, name="detent-zookeeper-watch", daemon=True)

    async def open(self) -> None:
        self._silent_from = monotonic() + self._candidate.limit
        self._watch.start()
        await self._in_thread(self._connected)

    async def campaign(self, wanted: Collection[int]) -> dict[int, int | None]:
        return await self._in_thread(lambda end: self._campaign(set(wanted), end))

    async def resign(self, partitions: Collection[int]) -> None:
        await self._in_thread(lambda end: self._resign(partitions, end))

    async def close(self) -> None:
        self._closed.set()
        with ignoring_errors_on_close(self.name):
            ending = self._end_session()
            if ending is not None:
                await asyncio.to_thread(ending.join, self._candidate.limit)
        self._worker.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[float], Result]) -> Result:
        limit = self._candidate.limit
        self._silent_from = monotonic() + limit
        async with answering("ZooKeeper", limit, KazooException, KazooTimeoutError, OSError):
            answer = await asyncio.get_running_loop().run_in_executor(self._worker, work, monotonic() + limit)
        self._silent_from = monotonic()
        return answer

    # --- in threads ---

    def _connected(self, end: float) -> Any:
        """Waits for a new session. Does not wait for one that lost its connection: kazoo reconnects by itself."""
        with self._lock:
            if self._closed.is_set():
                raise Unavailable("The coordinator is closed.")
            is_new = self._client is None or self._client.client_state in ENDED
            if is_new:
                self._drop_client()
                retry = {"max_tries": -1, "delay": 0.1, "max_delay": self._candidate.limit}
                self._client = KazooClient(
                    self._hosts, timeout=self._candidate.ttl, connection_retry=retry, logger=quiet
                )
                self._live = self._client.start_async()
            client = self._client
        if not self._live.wait(left(end) if is_new else 0):
            raise Unavailable("ZooKeeper cannot be reached.")
        return client

    def _campaign(self, wanted: set[int], end: float) -> dict[int, int | None]:
        client = self._connected(end)
        session = session_of(client)
        if not self._has_folders:
            self._make_folders(client, end)
        self._asked |= wanted  # before the answer, which may be lost
        found = self._look(client, self._asked, end)
        ours = {partition for partition, stat in found.items() if stat is not None and stat.ephemeralOwner == session}
        self._delete(client, ours - wanted, end)
        self._asked = wanted
        numbers: dict[int, int | None] = {partition: found[partition].czxid for partition in ours & wanted}
        numbers |= self._create(client, [partition for partition in wanted if found[partition] is None], end)
        if session_of(client) != session:
            raise Unavailable("ZooKeeper ended the session meanwhile.")
        return numbers

    def _resign(self, partitions: Collection[int], end: float) -> None:
        client = self._connected(end)
        session = session_of(client)
        found = self._look(client, partitions, end)
        ours = [partition for partition, stat in found.items() if stat is not None and stat.ephemeralOwner == session]
        self._delete(client, ours, end)

    def _path(self, partition: int) -> str:
        return f"{self._folder}/partition-{partition}/leader"

    def _make_folders(self, client: Any, end: float) -> None:
        """Create all missing folders in one transaction; when two nodes do this at once, one of them does nothing."""
        client.ensure_path_async(self._folder).get(timeout=left(end))
        there = set(client.get_children_async(self._folder).get(timeout=left(end)))
        missing = {f"partition-{partition}" for partition in range(PARTITIONS)} - there
        if missing:
            making = client.transaction()
            for name in missing:
                making.create(f"{self._folder}/{name}")
            making.commit_async().get(timeout=left(end))

    def _look(self, client: Any, partitions: Collection[int], end: float) -> dict[int, Any]:
        answers = [client.exists_async(self._path(partition)) for partition in partitions]
        return dict(zip(partitions, gathered(answers, end), strict=True))

    def _create(self, client: Any, partitions: Collection[int], end: float) -> dict[int, int]:
        answers = [
            client.create_async(self._path(partition), self._me, ephemeral=True, include_data=True)
            for partition in partitions
        ]
        found = gathered(answers, end, NodeExistsError, NoNodeError)
        self._has_folders = not any(isinstance(answer, NoNodeError) for answer in found)
        return {
            partition: answer[1].czxid
            for partition, answer in zip(partitions, found, strict=True)
            if not isinstance(answer, Exception)  # another node was first
        }

    def _delete(self, client: Any, partitions: Iterable[int], end: float) -> None:
        gathered([client.delete_async(self._path(partition)) for partition in partitions], end, NoNodeError)

    def _end_when_silent(self) -> None:
        while not self._closed.wait(max(left(self._silent_from + self._candidate.ttl), SHORTEST_LOOK)):
            if left(self._silent_from + self._candidate.ttl) == 0:
                self._end_session()

    def _end_session(self) -> threading.Thread | None:
        with self._lock:
            return self._drop_client()

    def _drop_client(self) -> threading.Thread | None:
        """The thread in which kazoo closes the session; that takes seconds when no server answers."""
        client, self._client = self._client, None
        if client is None:
            return None
        ending = threading.Thread(target=stop, args=(client,), name="detent-zookeeper-end", daemon=True)
        ending.start()
        return ending


def left(end: float) -> float:
    return max(end - monotonic(), 0.0)


def gathered(answers: Iterable[Any], end: float, *expected: type[Exception]) -> list[Any]:
    """Wait for the answers of requests that were sent together. An expected error takes the place of its answer."""
    results: list[Any] = []
    for answer in answers:
        try:
            results.append(answer.get(timeout=left(end)))
        except expected as error:
            results.append(error)
    return results


def session_of(client: Any) -> int:
    session = client.client_id
    if session is None:
        raise Unavailable("ZooKeeper cannot be reached.")
    number: int = session[0]
    return number


def stop(client: Any) -> None:
    with ignoring_errors_on_close("zookeeper"):
        client.stop()
        client.close()
