"""A real Chromium whose errors are recorded.

If it is missing, root installs Debian's package; other users see the command; under CI the test fails.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser as Chrome
from playwright.async_api import ConsoleMessage, Page, Response, async_playwright

from tests.support import guardian

PATIENCE = 90_000.0  # milliseconds; many tests may run on few processors
INSTALL = ("apt-get", "install", "-y", "--no-install-recommends", "chromium")
AXE = Path(__file__).parents[1] / "dashboard" / "vendor" / "axe-4.14.0.min.js"
RUN_AXE = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"


def require_chromium() -> str:
    found = chromium()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        found = chromium()
    if found is None:
        text = f"Chromium must be installed: {' '.join(INSTALL)}"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    return found


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def _install() -> None:
    with (guardian.SHARED / "detent-test-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of the parallel test processes installs, the others wait
        if chromium() is None:
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (("apt-get", "update"), INSTALL):
                subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)


class Browser:
    """One tab; `complaints` are console errors, failed scripts and failed requests."""

    def __init__(self, url: str, page: Page) -> None:
        self.url = url
        self.page = page
        self.complaints: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("response", self._answered)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} at {self.page.url}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.status} for {response.url}")

    async def open(self, path: str) -> None:
        await self.page.goto(self.url + path)

    async def live(self) -> None:
        """Wait until changes are shown."""
        await self.page.wait_for_selector('#live-state[data-live="on"]:has-text("live")')

    async def axe(self) -> list[str]:
        """Accessibility violations."""
        if not await self.page.evaluate("() => 'axe' in window"):
            await self.page.evaluate(AXE.read_text())
        found: list[dict[str, Any]] = await self.page.evaluate(RUN_AXE)
        return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]

    async def overflows(self) -> int:
        """By how many pixels the page is wider than the window."""
        wider: int = await self.page.evaluate(
            "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return wider

    def check(self) -> None:
        assert self.complaints == []


@asynccontextmanager
async def running_browser(
    url: str, *, width: int = 1440, height: int = 900, theme: str = "light"
) -> AsyncIterator[Browser]:
    async with running_chromium() as chrome:
        yield await new_tab(chrome, url, width=width, height=height, theme=theme)


@asynccontextmanager
async def running_chromium() -> AsyncIterator[Chrome]:
    path = require_chromium()
    async with async_playwright() as playwright:
        chrome = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield chrome
        finally:
            await chrome.close()


async def new_tab(chrome: Chrome, url: str, *, width: int = 1440, height: int = 900, theme: str = "light") -> Browser:
    """A tab with its own context: it shares only the process with others."""
    context = await chrome.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if theme == "dark" else "light"
    )
    context.set_default_timeout(PATIENCE)
    return Browser(url, await context.new_page())
