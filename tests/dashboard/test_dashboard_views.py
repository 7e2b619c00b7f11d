"""Every page in a real browser, on two real nodes: no errors, accessible, and not too wide."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import expect

from detent.devtools.demo.fill import fill
from detent.store import Database, Store
from tests.support.browsing import PATIENCE, Browser, new_tab, running_chromium
from tests.support.processes import Node, Nodes

DAYS = 2
expect.set_options(timeout=PATIENCE)


@pytest.fixture
async def filled(database_url: str) -> dict[str, str]:
    """A database with two days of history; the paths of the pages by name."""
    database = Database(database_url)
    await database.open()
    store = Store(database)
    try:
        await fill(store, DAYS, "http://127.0.0.1:9/demo/echo", beside=False)
        job = await store.jobs.id_of("payment-reconcile")
        (dead, *_), _ = await store.dead_letters.list(limit=1)
        (good, *_), _ = await store.runs.list(job=job, limit=5)
    finally:
        await database.close()
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job": f"/jobs/{job}",
        "run": f"/runs/{dead.id}",
        "another run": f"/runs/{good.id}",
        "runs": "/runs",
        "timeline": "/timeline?zoom=24h",
        "dead letters": "/dead-letters",
        "cluster": "/cluster",
        "problems": "/cluster/problems",
        "changes": "/changes",
        "new job": "/jobs/new",
        "edit": f"/jobs/{job}/edit",
        "wrong search": f"/jobs?search={quote('colour:red')}",
        "nothing found": "/jobs?search=no-such-job",
    }


async def look_at(browser: Browser, views: dict[str, str]) -> None:
    for name, path in views.items():
        await browser.open(path)
        if name not in ("new job", "edit", "wrong search"):
            await browser.live()
        assert await browser.overflows() == 0, name
        assert await browser.axe() == [], name


async def test_the_main_views_of_a_live_node_are_clean(cluster: Nodes, filled: dict[str, str], browse: Any) -> None:
    node = await cluster.start("serve")
    async with browse(node.url) as browser:
        await look_at(browser, {name: filled[name] for name in ("overview", "jobs", "run", "problems")})
        await select_by_key(browser, node)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_every_view_is_clean_in_both_themes_and_on_a_narrow_screen(
    cluster: Nodes, filled: dict[str, str]
) -> None:
    node = await cluster.start("serve")
    await cluster.start("serve")
    async with running_chromium() as chrome:
        for theme, width in product(("light", "dark"), (1440, 400)):
            browser = await new_tab(chrome, node.url, theme=theme, width=width)
            await look_at(browser, filled)
            browser.check()
            await browser.page.context.close()


async def select_by_key(browser: Browser, node: Node) -> None:
    """Rows selected with x stay selected while the page is live, and bulk actions apply to them."""
    page = browser.page
    await browser.open("/jobs")
    await browser.live()
    for key in "jxjjx":
        await page.keyboard.press(key)
    label = page.locator("[data-many]")
    await expect(label).to_have_text("2 selected:")
    names = await page.locator("tr.chosen .name a").all_text_contents()
    await asyncio.to_thread(node.client.pause_job, "telemetry-rollup")
    await expect(page.locator("tr.chosen ~ tr .s-paused")).to_have_count(2)  # one job of the demo is already paused
    await expect(label).to_have_text("2 selected:")
    assert await page.locator("tr.chosen .name a").all_text_contents() == names
    await page.get_by_role("button", name="Pause…").click()
    await expect(page.locator("#dialog .sample li")).to_have_text([f"●active {name}" for name in names])
    await page.locator("#dialog [data-close]").click()
    await page.keyboard.press("Shift+X")
    await expect(label).not_to_have_text("2 selected:")
    await page.get_by_role("button", name="Clear selection").click()
    await expect(label).to_have_text("All jobs:")


@pytest.mark.long
async def test_keyboard_shortcuts(cluster: Nodes, filled: dict[str, str], browse: Any) -> None:
    node = await cluster.start("serve")
    async with browse(node.url) as browser:
        page = browser.page
        await browser.open("/")
        await browser.live()
        await page.keyboard.press("g")
        await page.keyboard.press("j")
        await page.wait_for_url("**/jobs")
        await browser.live()
        await page.keyboard.press("/")
        await page.keyboard.type("report")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/jobs?search=report")
        await browser.live()
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await page.keyboard.press("k")
        assert await page.locator("#rows tbody tr:first-child:focus-within").count() == 1
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/jobs/0*")
        await browser.live()
        await page.keyboard.press("?")
        await page.locator("#help[open]").wait_for()
        assert await browser.axe() == []
        await page.keyboard.press("Escape")
        first = page.locator("#recent tbody tr").first.locator("time")
        before = await first.text_content()
        await page.keyboard.press("u")
        await page.keyboard.press("u")
        assert await page.locator("#clock").input_value() == "job"
        assert await first.text_content() != before
        # Times and themes are remembered.
        await browser.open("/jobs")
        await page.select_option("#theme", "dark")
        await page.select_option("#clock", "local")
        await browser.open("/runs")
        assert await page.evaluate("() => document.documentElement.dataset.theme") == "dark"
        assert await page.evaluate("() => document.documentElement.dataset.clock") == "local"
        colour = await page.evaluate("() => getComputedStyle(document.body).color")
        assert colour == "rgb(228, 232, 235)"
