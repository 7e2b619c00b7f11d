"""One attack on a server, in a separate process: `python -m chaos.flood_attacks ATTACK PORT SECONDS`.

The attacker shares the processors with the server, which an attacker elsewhere would not. So it is one loop over
epoll, sends buffers that all of its clients share, and has a lower priority than the server: the server gets the time
that it needs, and what is measured is the server.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import select
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from itertools import chain, repeat
from typing import NamedTuple

MEGABYTE = 1_048_576
NICENESS = 10
POLL_SECONDS = 0.05
ENDED = select.EPOLLHUP | select.EPOLLERR
RESET = struct.pack("ii", 1, 0)  # a connection is reset when it is closed, so that its port is free at once


class Attack(NamedTuple):
    """What so many clients do at the same time, again and again until the attack ends."""

    clients: int
    parts: tuple[bytes, ...]
    """What a client sends after it has connected."""

    endless: bytes = b""
    """What it sends after that, again and again, as fast as the server reads it."""

    drip: bytes = b""
    """What it sends every `drip_seconds`."""

    drip_seconds: float = 0.2
    stays: bool = False
    """It ignores answers, and leaves only when the connection is reset."""

    pause: float = 0.2
    """So many seconds after its connection has ended, it opens another."""

    addresses: int = 1
    receives: int = 0
    """The size of its receive buffer. No client reads answers."""


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *length, *headers, "", ""]).encode() + body


def _unfinished(path: str, kind: str, size: int, filler: bytes) -> tuple[bytes, ...]:
    """All of a request but its last byte."""
    head = request("POST", path, f"Content-Type: {kind}", f"Content-Length: {size}")
    whole, rest = divmod(size - 1, len(filler))
    return (head, *repeat(filler, whole), filler[:rest])


def _asked(path: str, document: object) -> tuple[bytes, ...]:
    """A request after whose answer the server closes the connection."""
    body = json.dumps(document, separators=(",", ":")).encode()
    return (request("POST", path, "Content-Type: application/json", "Connection: close", body=body),)


# Every second Sunday, if it is no Sunday: only a search through all years shows that it never comes.
NEVER = "DTSTART:20260104T000000\nRRULE:FREQ=HOURLY;INTERVAL=336;BYDAY=MO,TU,WE,TH,FR,SA"
YEARLY = {"schedule": "0 0 1 1 *", "timezone": "Europe/Berlin", "count": 240}


def costly_batch() -> list[dict[str, object]]:
    """100 different rules in 15 KB, so that none is found in a cache."""
    rules = (f"{NEVER};BYMINUTE={number % 60};BYSECOND={number // 60}" for number in range(100))
    return [{"schedule": rule, "target": {"type": "http", "url": "http://a"}} for rule in rules]


LINE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
HEADERS = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 100) for number in range(600))
PAGE = request("GET", "/openapi.json")
SLOW = request("POST", "/api/v1/jobs", "Content-Type: application/json", "Content-Length: 16000")
LOGIN = _unfinished("/login", "application/x-www-form-urlencoded", 3 * MEGABYTE, b"a" * MEGABYTE)
UPLOAD = _unfinished("/api/v1/jobs/batch", "application/x-ndjson", 60 * MEGABYTE, b" " * MEGABYTE)

ATTACKS = {
    "half-sent": Attack(1500, (LINE,), drip=b"X-A: b\r\n", addresses=4),
    "slow-bodies": Attack(1500, (SLOW,), drip=b" ", addresses=4),
    "endless-headers": Attack(20, (LINE,), endless=HEADERS, pause=0),
    "huge-headers": Attack(20, (LINE,), endless=b"a" * MEGABYTE, pause=0),
    "logins": Attack(150, LOGIN, stays=True),
    "uploads": Attack(8, UPLOAD, stays=True),
    "unread": Attack(300, (PAGE * 16,), drip=PAGE, receives=4096),
    "batch": Attack(5, _asked("/api/v1/jobs/batch", costly_batch()), pause=0),
    "previews": Attack(12, _asked("/api/v1/schedules/preview", YEARLY), pause=0),
}


class Client:
    """One connection at a time."""

    def __init__(self, attack: Attack, number: int, port: int, poll: select.epoll) -> None:
        self._attack = attack
        self._address = f"127.0.0.{1 + number % attack.addresses}"
        self._port = port
        self._poll = poll
        self._sock: socket.socket | None = None

    def open(self) -> int:
        """Connect without waiting for it; the descriptor."""
        self._sock = sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        if self._attack.receives:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._attack.receives)
        sock.bind((self._address, 0))
        sock.connect_ex(("127.0.0.1", self._port))
        self._parts = chain(self._attack.parts, repeat(self._attack.endless) if self._attack.endless else ())
        self._left = memoryview(b"")
        self._drips = False
        self._leaves_on = ENDED if self._attack.stays else ENDED | select.EPOLLRDHUP
        self._poll.register(sock, self._leaves_on | select.EPOLLOUT)
        return sock.fileno()

    def is_over_after(self, events: int) -> bool:
        """Send more where the server takes it."""
        if events & self._leaves_on:
            return True
        try:
            self._send()
        except OSError as error:
            return error.errno != errno.EAGAIN
        return False

    def _send(self) -> None:
        assert self._sock is not None
        self._left = self._left or memoryview(next(self._parts, b""))
        if self._left:
            self._left = self._left[self._sock.send(self._left) :]
        else:
            self._drips = True
            self._poll.modify(self._sock, self._leaves_on)

    def drip(self) -> None:
        if self._sock is not None and self._drips:
            with suppress(OSError):
                self._sock.send(self._attack.drip)

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class Attacker:
    def __init__(self, attack: Attack, port: int) -> None:
        self._attack = attack
        self._poll = select.epoll()
        self._clients = [Client(attack, number, port, self._poll) for number in range(attack.clients)]
        self._open: dict[int, Client] = {}
        self._opens_at = deque((0.0, client) for client in self._clients)

    def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        dripped = time.monotonic()
        while (now := time.monotonic()) < until:
            self._open_all(now)
            if self._attack.drip and now - dripped >= self._attack.drip_seconds:
                dripped = now
                for client in self._clients:
                    client.drip()
            for descriptor, events in self._poll.poll(POLL_SECONDS):
                if self._open[descriptor].is_over_after(events):
                    self._close(descriptor)
        for client in self._clients:
            client.close()

    def _open_all(self, now: float) -> None:
        while self._opens_at and self._opens_at[0][0] <= now:
            client = self._opens_at.popleft()[1]
            self._open[client.open()] = client

    def _close(self, descriptor: int) -> None:
        client = self._open.pop(descriptor)
        client.close()
        self._opens_at.append((time.monotonic() + self._attack.pause, client))


def main(name: str, port: int, seconds: float) -> None:
    os.nice(NICENESS)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    Attacker(ATTACKS[name], port).run(seconds)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
