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
from detent.errors import DetentError

url = os.environ["DATABASE_URL"]
app = Detent("cell", url=url)
node = EmbeddedNode(app, database_url=url, migrate=True)


def worker():
    return node.lifespan()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(cell: str, port: int) -> subprocess.Popen[bytes]:
    """`detent serve` with the app of a cell."""
    environ = {**os.environ, "PYTHONPATH": f"{Path(cell).parent}{os.pathsep}{os.environ['PYTHONPATH']}"}
    settings = ["--migrate", "--database-url", url, "--port", str(port), "--app", f"{Path(cell).stem}:app"]
    return subprocess.Popen([sys.executable, "-m", "detent", "serve", *settings], env=environ)


@contextlib.contextmanager
def served(cell: str):
    """A client of a node that has registered the jobs of the app."""
    port = free_port()
    process, wanted = serve(cell, port), {job["name"] for job in app.jobs}
    with Client(f"http://127.0.0.1:{port}") as client:
        while process.poll() is None:
            with contextlib.suppress(DetentError):
                if wanted <= {job.name for job in client.list_jobs()}:
                    break
            time.sleep(0.1)
        yield client
    process.terminate()
    process.wait()
