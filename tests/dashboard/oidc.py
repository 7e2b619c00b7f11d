"""A real OpenID provider in a process of its own: `oidc-provider`, the certified one for Node.js."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.servers import free_port
from tests.support.waiting import until_sync

SCRIPT = Path(__file__).with_name("oidc_provider.mjs")
LISTENING = re.compile(r"^listening on (\d+)$", re.MULTILINE)
CALLBACK = "/login/oidc/callback"
INSTALL_SECONDS = 300
# Where npm has installed oidc-provider already, for machines without a registry.
INSTALLED = "DETENT_TEST_OIDC_PROVIDER"
CLIENT_SECRET = "a secret of the client"


def installed_provider(folder: Path) -> Path:
    """The folder, with the script and the library that it imports."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        _missing("node and npm are not installed")
    shutil.copy(SCRIPT, folder)
    if INSTALLED in os.environ:
        (folder / "node_modules").symlink_to(Path(os.environ[INSTALLED]) / "node_modules")
        return folder
    install = [str(npm), "install", "--no-audit", "--no-fund", "--silent", "oidc-provider@8"]
    try:
        done = subprocess.run(install, cwd=folder, capture_output=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        _missing(f"npm could not install oidc-provider within {INSTALL_SECONDS} s")
    if done.returncode != 0:
        _missing(f"npm could not install oidc-provider: {done.stderr.decode()[-200:]}")
    return folder


def _missing(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}, and CI must log in at a real OpenID provider")
    pytest.skip(f"{what}: no login at an OpenID provider was tested")


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
