"""A database that hangs, stops and comes back, as a person sees it on a desktop and on a phone."""

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
from detent.store.jobs import DEFAULT_TENANT
from tests.dashboard.freezing import frozen
from tests.dashboard.pages import Pages
from tests.support.browsing import PATIENCE, Browser, new_tab, running_chromium
from tests.support.postgres import Postgres, running_postgres
from tests.support.processes import Nodes
from tests.support.waiting import until

expect.set_options(timeout=PATIENCE)

DESKTOP, PHONE = 1280, 400
NOT_ANSWERING = re.compile(r"Database not answering since \d\d:\d\d:\d\dZ\. Figures below are from then\.")
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
    """In words, over the whole width, in sight, and readable for everybody; the page below is grey."""
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


async def test_a_database_that_hangs_shows_on_every_width_until_it_answers(pages: Pages, postgres: Postgres) -> None:
    async with on_both_widths(pages.url) as tabs:
        with frozen(postgres.server):
            for tab in tabs:
                await expect_banner(tab)
        for tab in tabs:
            await expect_recovery(tab)


async def test_what_is_asked_of_a_database_that_hangs_is_refused_in_words_and_not_done(
    pages: Pages, postgres: Postgres
) -> None:
    document = {"name": "report", "schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}
    (job,) = await pages.store.jobs.add([read_document(document)], tenant=DEFAULT_TENANT)
    csrf = (await pages.get("/")).csrf
    with frozen(postgres.server):
        for path in ("/", "/jobs", f"/jobs/{job.id}", "/jobs/new", "/cluster"):
            shown = await pages.get(path)
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


async def test_a_page_that_is_loaded_while_the_database_hangs_appears_by_itself(
    pages: Pages, postgres: Postgres
) -> None:
    async with running_chromium() as chrome:
        tab = await new_tab(chrome, pages.url, width=PHONE)
        with frozen(postgres.server):
            await tab.open("/jobs")
            await expect(tab.page.locator("h1")).to_have_text("Database unavailable")
            assert await tab.axe() == []
            assert await tab.overflows() == 0
        await expect(tab.page.locator("h1")).to_have_text("Jobs")


async def test_the_builder_keeps_what_was_typed_while_the_database_hangs(pages: Pages, postgres: Postgres) -> None:
    async with running_chromium() as chrome:
        tab = await new_tab(chrome, pages.url, width=DESKTOP)
        await tab.open("/jobs/new")
        await tab.page.fill("#name", "report")
        with frozen(postgres.server):
            banner = tab.page.locator("#stale")
            await expect(banner).to_contain_text("Database not answering since")
            await expect(banner).to_contain_text("what you typed is kept")
            await tab.page.get_by_role("button", name="Create job").click()
            await expect(tab.page.locator(".toast")).to_contain_text("Nothing was changed")
        await expect(banner).to_be_hidden()
        assert await tab.page.input_value("#name") == "report"
        await tab.page.fill("#url", "http://127.0.0.1:9/")
        await tab.page.get_by_role("button", name="Create job").click()
        await tab.page.wait_for_url("**/jobs/0*")


async def test_a_browser_whose_key_was_revoked_is_shown_nothing_more_however_much_there_is_to_show(
    guarded: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.dashboard.app.STILL_HERE_SECONDS", 0.2)
    key = await guarded.store.keys.add("read", tenant=DEFAULT_TENANT)
    await guarded.post("/login", key=key.key, next="/")
    async with guarded.session.get(f"{guarded.url}/live/") as stream:
        await guarded.store.keys.revoke(key.id, tenant=DEFAULT_TENANT)
        async with asyncio.timeout(30):
            while await stream.content.readany():
                pass


@pytest.mark.long
async def test_a_database_that_is_stopped_and_a_server_that_is_gone_show_on_every_width() -> None:
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
async def test_a_node_whose_database_hangs_for_long_shows_it_throughout_and_recovers(
    cluster: Nodes, postgres: Postgres
) -> None:
    """Longer than its lease, and than any statement may take."""
    node = await cluster.start("serve")
    async with on_both_widths(node.url) as tabs:
        with frozen(postgres.server):
            for tab in tabs:
                await expect_banner(tab)
            await asyncio.sleep(30)  # it must not come to believe that all is well
            for tab in tabs:
                await expect_banner(tab)
        for tab in tabs:
            await expect_recovery(tab)
