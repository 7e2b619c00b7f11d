"""The messages of a process on a terminal: what runs, what to open and try, and where data is saved.

If stderr is not a terminal, it gets only the log and one line when the process is ready.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from detent.node.served import ServedWork
from detent.settings.settings import Settings
from detent.telemetry.log import logger
from detent.version import __version__

log = logger("worker")

NO_KEYS = "The cluster has none, so requests from this machine need none. The first key ends that."
KEYS_NEEDED = "Every request needs one: give it to the command line with DETENT_API_KEY or a context."


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Console:
    def __init__(
        self, settings: Settings, roles: tuple[str, ...], *, demo: bool = False, supervised: bool = False
    ) -> None:
        """`supervised`: a supervisor starts and stops this process, and speaks to the user about that."""
        self._settings = settings
        self.supervised = supervised
        self._roles = roles
        self.interactive = sys.stderr.isatty() and settings.log_format != "json"
        # The demo prints a line for each attempt. Routine log lines would make these hard to find.
        quiet = demo and self.interactive and settings.origins.get("log_level") == "default"
        self.log_level = "warning" if quiet else settings.log_level

    def starting(self) -> None:
        """Announce the creation of a database, which takes a few seconds."""
        folder = self._settings.data_dir
        if self.interactive and self._settings.database_url is None and not (folder.is_dir() and any(folder.iterdir())):
            say(f"Creating a PostgreSQL database in {folder} …")

    def note(self, text: str) -> None:
        say(text)

    def started(self, url: str | None, keys_needed: bool = False, served: ServedWork | None = None) -> None:
        """`url`: where the API listens; None for a process without an API. `keys_needed`: requests need a key.
        `served`: what the process serves as a worker."""
        if not self.interactive:
            if served is not None:
                log.info("serving", **served.fields())
            say(f"listening on {url}" if url is not None else f"{' and '.join(self._roles)} ready")
            return
        say(f"detent {__version__} is running: {_listed(self._roles)}, {self._database()}.")
        for line in served.lines() if served is not None else ():
            say(line)
        if url is not None:
            say(f"Open  {url}  for the dashboard.")
            say(f"Try   {self._client(url)} job list   or   {self._client(url)} --help   (Ctrl-C stops detent)")
            say(f"Keys  {KEYS_NEEDED if keys_needed else NO_KEYS}")
        elif not self.supervised:
            say("Stop  with Ctrl-C: running jobs finish first.")

    def stopping(self) -> None:
        if self.interactive and not self.supervised:
            say("\nStopping: waiting for running jobs. Press Ctrl-C again to stop immediately.")

    def stopped(self) -> None:
        if self.interactive and not self.supervised:
            say(f"Stopped. Jobs and their history are saved in {self._place()}.")
            say(f"Start again with: {' '.join([_program(), *sys.argv[1:]])}")

    def _database(self) -> str:
        embedded = self._settings.database_url is None
        return f"with its own PostgreSQL in {self._place()}" if embedded else f"on {self._place()}"

    def _place(self) -> str:
        if self._settings.database_url is None:
            return str(self._settings.data_dir)
        parts = urlsplit(self._settings.database_url)  # the user and password are not shown
        return f"the database {parts.path.lstrip('/') or 'postgres'} at {parts.hostname or 'this machine'}"

    def _client(self, url: str) -> str:
        named = "" if url == self._settings.api_url else f"DETENT_API_URL={url} "
        return f"{named}{_program()}"


def _program() -> str:
    """The command that started this process, so that a printed line can be copied."""
    path = Path(sys.argv[0])
    return "python -m detent" if path.name == "__main__.py" else sys.argv[0]


def _listed(roles: tuple[str, ...]) -> str:
    names = ["API" if role == "api" else role for role in roles]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def reachable(url: str) -> str:
    """The URL that other machines can use: a server that listens on all addresses is named by its host name."""
    parts = urlsplit(url)
    if parts.hostname not in ("0.0.0.0", "::"):  # noqa: S104 - looked for, not listened on
        return url
    return f"{parts.scheme}://{socket.gethostname()}:{parts.port}"
