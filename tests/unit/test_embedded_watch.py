"""When the embedded PostgreSQL is started again, and when that is given up: with a process and a clock of the test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.errors import Unavailable
from detent.store.embedded_host import process_of
from detent.store.embedded_watch import STEADY_SECONDS, TRIES, WATCH_EVERY, EmbeddedWatch
from tests.support.waiting import until_sync


class Server:
    """What a watch knows of a server; the process is a real one."""

    home = Path("/somewhere/data")
    log = home / "postgres.log"

    def __init__(self) -> None:
        self.revived = 0
        self.broken = False
        self.begun: list[subprocess.Popen[bytes]] = []
        self._begin()

    def _begin(self) -> None:
        self.begun.append(subprocess.Popen(["sleep", "600"]))

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.begun[-1]

    @property
    def postmaster(self) -> int:
        return self.process.pid

    async def revive(self) -> bool:
        self.revived += 1
        if self.broken:
            raise Unavailable("The disk is gone.")
        self._begin()
        return True

    def kill(self) -> None:
        """It stays a zombie until it is waited for, as in a container without an init."""
        self.process.kill()
        until_sync(lambda: process_of(self.process.pid) is None)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    for process in made.begun:
        process.kill()
        process.wait()


def watch_of(server: Any, now: list[float]) -> EmbeddedWatch:
    return EmbeddedWatch(server, lambda: now[0])


async def test_a_server_that_runs_is_left_alone(server: Server) -> None:
    watch = watch_of(server, [0.0])
    assert [await watch.tick() for _ in range(3)] == [WATCH_EVERY] * 3
    assert server.revived == 0


async def test_a_server_that_has_ended_is_started_again_at_the_next_check(server: Server) -> None:
    watch = watch_of(server, [0.0])
    server.kill()
    assert await watch.tick() == WATCH_EVERY
    assert await watch.tick() == WATCH_EVERY
    assert server.revived == 1


async def test_one_that_cannot_be_started_is_tried_again_with_growing_pauses_and_then_given_up(server: Server) -> None:
    watch = watch_of(server, [0.0])
    server.broken = True
    server.kill()
    pauses = [await watch.tick() for _ in range(TRIES - 1)]
    assert pauses == sorted(pauses) and pauses[-1] > 4 * pauses[0]
    with pytest.raises(Unavailable) as caught:
        await watch.tick()
    assert server.revived == TRIES
    for part in (str(server.home), str(server.log), "The disk is gone"):
        assert part in caught.value.message
    assert "DETENT_DATABASE_URL" not in caught.value.message


async def test_one_that_ends_soon_after_each_start_is_given_up_and_one_that_ran_for_a_while_is_not(
    server: Server,
) -> None:
    now = [0.0]
    watch = watch_of(server, now)
    for _ in range(3 * TRIES):
        server.kill()
        await watch.tick()
        now[0] += STEADY_SECONDS
        await watch.tick()
    for _ in range(TRIES):
        server.kill()
        await watch.tick()
    server.kill()
    with pytest.raises(Unavailable, match="soon after each start"):
        await watch.tick()
