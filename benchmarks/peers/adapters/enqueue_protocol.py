"""How `enqueue.py` and an adapter talk: `python ADAPTER.py URL`, then one line of JSON for each line on standard input.

The first line on standard output says which version is measured, once everything is ready. A line on standard input
names a column and its seconds; the answer has the rate, and how many runs and rows of the caller are in the tables:
the runner compares them with the number of calls. The tables are empty at the beginning of each column. An adapter runs
in the interpreter of the peers: it imports the standard library, its peer, and `enqueue_columns` of detent.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Protocol

from detent.devtools.bench.enqueue_columns import COLUMNS, EnqueueClient, measure_column

CONNECTIONS = max(column.connections for column in COLUMNS)
INSERT_ORDER = "INSERT INTO orders (customer, amount) VALUES ({}, {})"


class Peer(Protocol):
    """A system with its schema in place and `orders` beside it, and one client per connection."""

    version: str
    driver: str
    clients: list[EnqueueClient]

    async def clear(self) -> None:
        """Remove all runs and all rows of `orders`."""

    async def count(self) -> tuple[int, int]:
        """How many runs and rows of `orders` there are."""


def main(open_peer: Callable[[str], Awaitable[Peer]]) -> None:
    run = _loop_runner()
    run(_answer_all(open_peer, sys.argv[1]))


def _loop_runner():
    """The faster loop, for all of them."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


async def _answer_all(open_peer: Callable[[str], Awaitable[Peer]], url: str) -> None:
    peer = await open_peer(url)
    python = ".".join(map(str, sys.version_info[:3]))
    _say({"version": peer.version, "driver": f"{peer.driver} {version(peer.driver)}", "python": python})
    while line := await asyncio.to_thread(sys.stdin.readline):
        _say(await _answer(peer, json.loads(line)))


async def _answer(peer: Peer, asked: dict) -> dict:
    column = next(each for each in COLUMNS if each.name == asked["column"])
    await peer.clear()
    began = time.process_time()
    rate = await measure_column(column, peer.clients, asked["seconds"])
    cpu = time.process_time() - began
    runs, orders = await peer.count()
    return {"calls": rate.calls, "per_second": rate.per_second, "cpu_seconds": cpu, "runs": runs, "orders": orders}


def _say(answer: dict) -> None:
    print(json.dumps(answer), flush=True)
