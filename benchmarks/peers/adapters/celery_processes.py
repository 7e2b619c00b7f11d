"""A Celery worker and a beat as processes of their own, and how many results there are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

CHILDREN = int(os.environ.get("PEER_CHILDREN", str(os.cpu_count() or 2)))
POOL = os.environ.get("PEER_POOL", "prefork")
HERE = Path(__file__).parent

_clients: dict[str, redis.Redis] = {}


@contextmanager
def worker(url: str, children: int) -> Iterator[None]:
    """Without gossip, mingle and its own heartbeat, which one worker alone does not need."""
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    with _celery(url, "worker", "--pool", POOL, "--concurrency", str(children), *quiet):
        yield


@contextmanager
def beat(url: str) -> Iterator[None]:
    with _celery(url, "beat", "--scheduler", "redbeat.RedBeatScheduler", "--pidfile", ""):
        yield


@contextmanager
def _celery(url: str, *arguments: str) -> Iterator[None]:
    environ = {**os.environ, "PEER_REDIS": url, "C_FORCE_ROOT": "1"}
    command = [sys.executable, "-m", "celery", "--app", "celery_application", *arguments, "--loglevel", "ERROR"]
    process = subprocess.Popen(command, cwd=HERE, env=environ, stdout=sys.stderr)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def results(url: str) -> int:
    if url not in _clients:
        _clients[url] = redis.Redis.from_url(url.removesuffix("/0") + "/1")
    return _clients[url].dbsize()


async def until(reached: Callable[[], bool]) -> None:
    while not reached():
        await asyncio.sleep(0.02)
