"""A database that hangs, stops and recovers, on a desktop and on a phone."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import expect

from detent.domain.registration import read_document
from detent.jobs import JobOperations
from detent.store.jobs import DEFAULT_TENANT
from tests.dashboard.freezing import frozen
from tests.dashboard.pages import Pages
from tests.support.browsing import PATIENCE, Browser, new_tab, running_chromium
from tests.support.postgres import Postgres, running_postgres
from tests.support.processes import Nodes
from tests.support.waiting import until

expect.set_options(timeout=PATIENCE)

DESKTOP, PHONE = 1280, 400
NOT_ANSWERING = re.compile(r"Database not answering since \d\d:\d\d:\d\dZ\. This page shows data from that time\.")
RAW = re.compile(r"postgres(ql)?://|asyncpg|Traceback|Exception|Errno|/tmp/|/dev/shm|host=", re.IGNORECASE)


@asynccontextmanager
async def on_both_widths(url: str, path: str = "/") -> AsyncIterator[list[Browser]]:
    """The same page on a desktop and on a phone, both live."""
    async with running_chromium() as chrome:
        tabs = [await new_tab(chrome, url, width=width, height=800) for width in (DESKTOP, PHONE)]
        for tab in tabs:
            await tab.open(path)
            await tab.live()
        yield tabs


async def expect_banner(tab: Browser) -> None:
    """The banner is visible over the whole width and accessible; the page below is grey."""
    banner = tab.page.locator("#stale")
    await expect(banner).to_be_visible()
    await expect(banner).to_have_text(NOT_ANSWERING)
    box = await banner.bounding_box()
    width = await tab.page.evaluate("() => document.documentElement.clientWidth")
    assert box is not None
    assert (box["x"], box["y"], box["width"]) == (0, 0, width)
    assert await tab.page.evaluate("() => getComputedStyle(document.querySelector('main')).filter") == "grayscale(1)"
    assert await tab.page.locator("#live-state[data-live=on]").count() == 0
    assert await tab.overflows() == 0
    assert await tab.axe() == []
    assert RAW.search(await tab.page.locator("body").inner_text()) is None
    assert (await tab.page.title()).startswith("Not answering")


async def expect_recovery(tab: Browser) -> None:
    await expect(tab.page.locator("#stale")).to_be_hidden()
    await tab.live()
    assert not (await tab.page.title()).startswith("Not answering")


async def test_a_banner_shows_on_every_width_while_the_database_hangs(pages: Pages, postgres: Postgres) -> None:
    async with on_both_widths(pages.url) as tabs:
        with frozen(postgres.server):
            for tab in tabs:
                await expect_banner(tab)
        for tab in tabs:
            await expect_recovery(tab)


async def test_pages_and_changes_are_refused_while_the_database_hangs(pages: Pages, postgres: Postgres) -> None:
    document = {"name": "report", "schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}
    (job,) = await JobOperations(pages.store).registration.add([read_document(document)], tenant=DEFAULT_TENANT)
    csrf = (await pages.get("/")).csrf
    with frozen(postgres.server):
        paths = ("/", "/jobs", f"/jobs/{job.id}", "/jobs/new", "/cluster")
        for path, shown in zip(paths, await asyncio.gather(*map(pages.get, paths)), strict=True):
            assert (shown.status, shown.headers["Retry-After"]) == (503, "2"), path
            assert "Database not answering." in shown.text
            assert RAW.search(shown.text) is None, shown.text
        paused = await pages.post(f"/jobs/{job.id}/pause", csrf=csrf)
        assert paused.status == 503
        assert "Database not answering. Nothing was changed: try again when it answers." in paused.text
        assert (await pages.get("/heartbeat")).status == 503
    await until(partial(_answers, pages))
    found = await pages.store.jobs.get(job.id)
    assert found is not None
    assert found.status == "active"
    assert (await pages.get("/jobs")).status == 200


async def _answers(pages: Pages) -> bool:
    return (await pages.get("/heartbeat")).status == 200


async def test_a_page_opened_while_the_database_hangs_loads_when_it_answers(pages: Pages, postgres: Postgres) -> None:
    async with running_chromium() as chrome:
        tab = await new_tab(chrome, pages.url, width=PHONE)
        with frozen(postgres.server):
            await tab.open("/jobs")
            await expect(tab.page.locator("h1")).to_have_text("Database unavailable")
            assert await tab.axe() == []
            assert await tab.overflows() == 0
        await expect(tab.page.locator("h1")).to_have_text("Jobs")


async def test_the_builder_keeps_its_input_while_the_database_hangs(pages: Pages, postgres: Postgres) -> None:
    async with running_chromium() as chrome:
        tab = await new_tab(chrome, pages.url, width=DESKTOP)
        await tab.open("/jobs/new")
        await tab.page.fill("#name", "report")
        with frozen(postgres.server):
            banner = tab.page.locator("#stale")
            await expect(banner).to_contain_text("Database not answering since")
            await expect(banner).to_contain_text("your input is kept")
            await tab.page.get_by_role("button", name="Create job").click()
            await expect(tab.page.locator(".toast").first).to_contain_text("Nothing was changed")
        await expect(banner).to_be_hidden()
        assert await tab.page.input_value("#name") == "report"
        await tab.page.fill("#url", "http://127.0.0.1:9/")
        await tab.page.get_by_role("button", name="Create job").click()
        await tab.page.wait_for_url("**/jobs/0*")


@pytest.mark.long
async def test_a_banner_shows_a_stopped_database_and_a_dead_server() -> None:
    with (
        running_postgres() as postgres,
        postgres.database_apart() as url,
        tempfile.TemporaryDirectory(prefix="detent-test-") as folder,
        closing(Nodes(Path(folder), DETENT_DATA_DIR=f"{folder}/data", DETENT_DATABASE_URL=url)) as nodes,
    ):
        node = await nodes.start("serve")
        async with on_both_widths(node.url, "/cluster") as tabs:
            os.kill(postgres.server.postmaster, signal.SIGINT)  # a fast shutdown
            for tab in tabs:
                await expect_banner(tab)
            await postgres.server._bring_up()
            for tab in tabs:
                await expect_recovery(tab)
            await node.kill()
            for tab in tabs:
                await expect(tab.page.locator("#stale")).to_contain_text("Server not answering since")
                assert await tab.axe() == []
            again = await nodes.start("serve", "--port", node.url.rpartition(":")[2])
            assert again.url == node.url
            for tab in tabs:
                await expect_recovery(tab)


@pytest.mark.long
async def test_the_banner_stays_while_the_database_hangs_for_long(cluster: Nodes, postgres: Postgres) -> None:
    """The database hangs longer than the lease and than any statement timeout."""
    node = await cluster.start("serve")
    async with on_both_widths(node.url) as tabs:
        with frozen(postgres.server):
            for tab in tabs:
                await expect_banner(tab)
            await asyncio.sleep(30)  # the banner must not disappear
            for tab in tabs:
                await expect_banner(tab)
        for tab in tabs:
            await expect_recovery(tab)
