"""Screenshots of every page, light and dark, wide and narrow, from two nodes with a month of history.

    python -m tools.screenshots [folder]

writes them to build/screenshots, and those of the README to docs/pictures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from detent.client import JsonClient
from tests.support.browsing import Browser, running_browser
from tests.support.ports import free_port

ROOT = Path(__file__).parents[1]
SETTLE_SECONDS = 45.0
WIDTHS = {1440: 900, 400: 860}
IN_README = {"overview-light-1440": "overview.png", "run-dark-1440": "run.png"}
DETENT = (sys.executable, "-m", "detent")


@contextmanager
def two_nodes(folder: Path) -> Iterator[str]:
    """The address of the first node."""
    port = free_port()
    environ = {**os.environ, "DETENT_DATA_DIR": str(folder / "data"), "DETENT_LOG_LEVEL": "error"}
    subprocess.run([*DETENT, "demo", "--port", str(port)], env=environ, check=True)
    address = f"http://127.0.0.1:{port}"
    serve = [*DETENT, "serve", "--demo", "--port"]
    nodes = [subprocess.Popen([*serve, str(port)], env=environ)]
    try:
        _wait_for(address)
        nodes.append(subprocess.Popen([*serve, "0"], env=environ))
        yield address
    finally:
        for node in reversed(nodes):
            node.terminate()
            node.wait()


def _wait_for(address: str) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{address}/readyz", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"Nothing answers at {address}.")


def views(address: str) -> dict[str, str]:
    with JsonClient(address) as client:
        job = client.get_job("payment-reconcile")
        dead = client.list_dead_letters().page(40)["items"]
    run = next((each for each in dead if each["job"] == "payment-reconcile"), dead[0])
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job": f"/jobs/{job['id']}",
        "run": f"/runs/{run['id']}",
        "runs": "/runs",
        "timeline": "/timeline?zoom=24h",
        "dead-letters": "/dead-letters",
        "cluster": "/cluster",
        "problems": "/cluster/problems",
        "changes": "/changes",
        "builder": f"/jobs/{job['id']}/edit",
    }


async def take_screenshots(address: str, folder: Path) -> None:
    shown = views(address)
    for width, height in WIDTHS.items():
        for theme in ("light", "dark"):
            async with running_browser(address, width=width, height=height, theme=theme) as browser:
                for name, path in shown.items():
                    await _screenshot(browser, path, folder / f"{name}-{theme}-{width}.png")
                print(f"{theme}, {width} px: {len(shown)} views, {len(browser.complaints)} browser errors")
                for complaint in browser.complaints:
                    print(f"  {complaint}")


async def _screenshot(browser: Browser, path: str, file: Path) -> None:
    await browser.open(path)
    if not path.endswith("/edit"):
        await browser.live()
    if path == "/":  # a busy machine has late ticks, which the picture should not show
        with contextlib.suppress(Exception):
            await browser.page.wait_for_selector(".strip:not(:has([data-kind=lag]))", timeout=120_000)
    await browser.page.wait_for_timeout(900)
    readme = file.stem in IN_README
    await browser.page.screenshot(path=file, full_page=not readme)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="detent-pictures-", ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o711)
        with two_nodes(Path(place)) as address:
            time.sleep(SETTLE_SECONDS)  # until both nodes have run something and have settled
            asyncio.run(take_screenshots(address, folder))
    for name, picture in IN_README.items():
        shutil.copy(folder / f"{name}.png", ROOT / "docs" / "pictures" / picture)
    print(f"Screenshots: {folder}")


if __name__ == "__main__":
    main()
