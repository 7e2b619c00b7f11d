"""The dashboard under a path of a FastAPI application, in a real browser."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx

from tests.contrib.asgi.web_process import uvicorn
from tests.support.browsing import running_browser
from tests.support.waiting import until


async def test_every_page_works_under_the_path_of_the_mount(tmp_path: Path, database_url: str) -> None:
    async with uvicorn(tmp_path, "fastapi", "embedded:web", DETENT_DATABASE_URL=database_url) as web:
        [run] = await web.order(1)
        await web.finished(run)
        async with running_browser(f"{web.url}/detent") as browser:
            page = browser.page
            await browser.open("/")
            await browser.live()
            for name in ("Jobs", "Tasks", "Runs", "Timeline", "Dead letters", "Cluster", "Problems", "Changes"):
                await page.get_by_role("link", name=name, exact=False).first.click()
                await page.wait_for_load_state()
                assert "/detent/" in page.url
                assert await page.locator("main h1").count() == 1
            await page.keyboard.press("g")
            await page.keyboard.press("j")
            await page.wait_for_url("**/detent/jobs")
            await page.get_by_role("link", name="count-receipts").click()
            await page.wait_for_url("**/detent/jobs/*")
            await browser.live()
            await page.get_by_role("button", name="Run now").first.click()
            await page.locator("dialog[open] form button:not([type=button])").last.click()
            await page.wait_for_url("**/detent/runs/*")
            await page.get_by_text("succeeded").first.wait_for()
            await browser.open("/")
            await browser.live()
            if pictures := os.environ.get("DETENT_TEST_PICTURES"):
                await page.screenshot(path=f"{pictures}/mounted.png")
        browser.check()
        await web.terminate()


async def test_a_page_that_is_open_does_not_keep_the_server_from_ending(tmp_path: Path, database_url: str) -> None:
    options = ("--timeout-graceful-shutdown", "1")
    async with uvicorn(tmp_path, "fastapi", "embedded:web", *options, DETENT_DATABASE_URL=database_url) as web:
        received = asyncio.Queue[str]()

        async def follow() -> None:
            async with (
                httpx.AsyncClient(base_url=web.url, timeout=60) as client,
                client.stream("GET", "/detent/live/jobs") as stream,
            ):
                async for line in stream.aiter_lines():
                    received.put_nowait(line)

        following = asyncio.create_task(follow())
        while 'href="/detent/jobs/' not in await asyncio.wait_for(received.get(), 30):
            pass
        await web.order(*range(5))
        web.process.terminate()
        await until(lambda: web.is_over, 30, "the application to end")
        assert "Application shutdown complete" in web.text
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
