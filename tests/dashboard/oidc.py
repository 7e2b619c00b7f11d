"""A real OpenID provider in a process of its own: `oidc-provider`, the certified one for Node.js."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.node_packages import folder_with_packages
from tests.support.ports import free_port
from tests.support.waiting import until_sync

SCRIPT = Path(__file__).with_name("oidc_provider.mjs")
LISTENING = re.compile(r"^listening on (\d+)$", re.MULTILINE)
CALLBACK = "/login/oidc/callback"
CLIENT_SECRET = "a secret of the client"


def installed_provider(folder: Path) -> Path:
    return folder_with_packages(folder, SCRIPT, "the login at an OpenID provider")


class OpenIdProvider:
    """`settings`: those of a server that is its client, and listens on `client_port`."""

    def __init__(self, folder: Path, client_port: int) -> None:
        self.port = free_port()
        self.client_port = client_port
        self.issuer = f"http://localhost:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / f"provider-{self.port}.log"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "oidc_issuer": self.issuer,
            "oidc_client_id": "detent",
            "oidc_client_secret": CLIENT_SECRET,
            "oidc_redirect_url": f"http://127.0.0.1:{self.client_port}{CALLBACK}",
            "oidc_scopes": ("openid", "email", "profile", "groups"),
        }

    def start(self) -> None:
        with self._log.open("wb") as log:
            command = ["node", SCRIPT.name, str(self.port), self.settings["oidc_redirect_url"]]
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        until_sync(lambda: LISTENING.search(self._log.read_text()), 120, "the provider listens")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def set_people(self, login: str | None, **people: dict[str, Any]) -> None:
        """Who there is at the provider, and who logs in there next; None: nobody does."""
        async with (
            aiohttp.ClientSession() as session,
            session.put(f"{self.issuer}/people", json={"login": login, "people": people}) as answer,
        ):
            assert answer.status == 204


@contextmanager
def running_provider(folder: Path) -> Iterator[OpenIdProvider]:
    provider = OpenIdProvider(folder, free_port())
    try:
        provider.start()
        yield provider
    finally:
        provider.stop()
