"""A process that asks a node for /livez again and again, and reads its memory use, until its standard input ends.

    python -m tests.security.livez_watch PORT PID

It is a process of its own, since the one that attacks has no time to measure. On a busy machine every answer is late,
so it asks a bare server as often as the node, and prints both as JSON.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

PAUSE = 0.02
NO_ANSWER = 5.0
REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def memory(process: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def ask(port: int) -> float:
    """How long the answer took."""
    began = time.monotonic()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=NO_ANSWER) as client:
            client.sendall(REQUEST)
            return time.monotonic() - began if client.recv(4096).startswith(b"HTTP/1.1 200") else NO_ANSWER
    except OSError:
        return NO_ANSWER


def serve_bare(port: Connection) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def set_at_end_of_input(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def main(port: int, process: int) -> None:
    here, there = multiprocessing.Pipe()
    bare = multiprocessing.get_context("fork").Process(target=serve_bare, args=(there,), daemon=True)
    bare.start()
    bare_port = here.recv()
    over = threading.Event()
    threading.Thread(target=set_at_end_of_input, args=(over,), daemon=True).start()
    before = most = memory(process)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    waits, bare_waits = [], []
    while not over.wait(PAUSE):
        waits.append(ask(port))
        bare_waits.append(ask(bare_port))
        most = max(most, memory(process))
    sys.stdout.write(json.dumps({"grown": most - before, "waits": waits, "bare_waits": bare_waits}))
    bare.terminate()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
