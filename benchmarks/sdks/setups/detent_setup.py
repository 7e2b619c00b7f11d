"""What all cells of detent share: an app on PostgreSQL, a node in this process, and one in a process of its own."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from detent import Client, Detent
from detent.contrib.asgi import EmbeddedNode

url = os.environ["DATABASE_URL"]
app = Detent("cell", url=url)
node = EmbeddedNode(app, database_url=url, migrate=True)


def worker():
    return node.lifespan()


def serve(cell: str, port: int) -> subprocess.Popen[bytes]:
    """`detent serve` with the app of a cell."""
    environ = {**os.environ, "PYTHONPATH": f"{Path(cell).parent}{os.pathsep}{os.environ['PYTHONPATH']}"}
    settings = ["--migrate", "--database-url", url, "--port", str(port), "--app", f"{Path(cell).stem}:app"]
    return subprocess.Popen(
        [sys.executable, "-m", "detent", "serve", *settings], env=environ, stderr=subprocess.DEVNULL
    )


@contextlib.contextmanager
def served(cell: str):
    """A client of a node that is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = serve(cell, port)
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        time.sleep(0.1)
    with Client(f"http://127.0.0.1:{port}") as client:
        yield client
    process.terminate()
    process.wait()
