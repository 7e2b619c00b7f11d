"""A job from the builder to a dead letter and back, and a node that dies, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect

from detent.store import Store
from detent.store.jobs import DEFAULT_TENANT
from tests.support.browsing import PATIENCE, Browser
from tests.support.processes import Nodes
from tests.support.sink import Sink

expect.set_options(timeout=PATIENCE)


async def build(browser: Browser, url: str, name: str, **fields: str) -> None:
    """Create a job in the builder by typing."""
    page = browser.page
    await browser.open("/jobs/new")
    await page.fill("#name", name)
    await page.get_by_text("Interval", exact=True).click()
    await page.fill("#every", "2s")
    await expect(page.locator("#preview")).to_contain_text("Every 2 seconds")
    await page.fill("#url", url)
    for field, value in fields.items():
        await page.locator(f"details:has(#{field})").evaluate("element => element.setAttribute('open', '')")
        if await page.locator(f"select#{field}").count():
            await page.select_option(f"#{field}", value)
        else:
            await page.fill(f"#{field}", value)
    await page.get_by_role("button", name="Create job").click()
    await page.wait_for_url("**/jobs/0*")
    await browser.live()


@pytest.mark.long
async def test_a_job_is_created_breaks_is_paused_and_its_dead_runs_are_retried(
    cluster: Nodes, sink: Sink, browse: Any
) -> None:
    node = await cluster.start("serve")
    await cluster.start("serve")
    async with browse(node.url) as browser:
        page = browser.page
        await build(browser, f"{sink.url}/ok", "<b>hello</b>")
        await expect(page.locator("h1")).to_have_text("<b>hello</b>")
        # The page shows its runs without a reload.
        await expect(page.locator("#recent .s-succeeded").first).to_be_visible()
        # Break it: every run fails three times, which is the number of its attempts.
        await page.get_by_role("link", name="Edit").click()
        await page.fill("#url", f"{sink.url}/fail/3")
        await page.locator("details:has(#max_retries)").evaluate("element => element.setAttribute('open', '')")
        await page.fill("#max_retries", "2")
        await page.fill("#retry_base_seconds", "0.1")
        await page.get_by_role("button", name="Save as revision 2").click()
        await page.wait_for_url("**/jobs/0*")
        await browser.live()
        dead = page.locator("#recent tr:has(.s-dead) a").first
        await expect(dead).to_be_visible()
        await expect(page.locator(".diff").first).to_contain_text("max_retries")
        run = await dead.get_attribute("href")
        await pause_in_bulk(browser)
        await retry_dead_runs(browser, run or "")


async def pause_in_bulk(browser: Browser) -> None:
    page = browser.page
    await browser.open("/jobs?search=hello")
    await browser.live()
    await page.get_by_role("button", name="Pause…").click()
    dialog = page.locator("#dialog[open]")
    await expect(dialog).to_contain_text("1 job would be paused")
    await dialog.locator("#bulk-reason").fill("it is broken")
    await dialog.get_by_role("button", name="Pause 1").click()
    await expect(dialog).to_contain_text("Paused 1 job")
    assert await browser.axe() == []
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.locator("#rows tr .s-paused")).to_be_visible()


async def retry_dead_runs(browser: Browser, run: str) -> None:
    page = browser.page
    await browser.open(run)
    await browser.live()
    assert await page.locator("#tracks .track .s-failed.span").count() == 3
    await expect(page.locator("#story")).to_contain_text("Attempt 3")
    await browser.open("/dead-letters")
    await browser.live()
    await expect(page.locator("#groups")).to_contain_text("HTTP 503")
    await page.locator("#groups").get_by_role("button", name="Retry…").click()
    dialog = page.locator("#dialog[open]")
    await dialog.locator("#rate").fill("5/s")
    assert await browser.axe() == []
    await dialog.get_by_role("button", name="Retry").click()
    # The job allows one run at a time, so the others are retried chunk by chunk.
    await expect(dialog.locator("[data-done]")).to_contain_text("retried.")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.locator("#groups")).to_contain_text("No dead letters")
    await browser.open(run)
    await expect(page.locator("#state .s-succeeded")).to_be_visible()
    await expect(page.locator("#tracks .track .s-succeeded.span")).to_have_count(1)


@pytest.mark.long
async def test_a_missed_deadline_is_shown_live_until_it_recovers(cluster: Nodes, sink: Sink, browse: Any) -> None:
    node = await cluster.start("serve")
    async with browse(node.url) as browser:
        page = browser.page
        await build(browser, f"{sink.url}/fail/99", "<b>late</b>", max_retries="0", expect_finish_within="5s")
        await expect(page.locator("#incidents")).to_contain_text("Each run must succeed within 5 s of its tick")
        await expect(page.locator("#status .note.bad")).to_contain_text("did not succeed within 5 s of its tick")
        await browser.open("/")
        await browser.live()
        await expect(page.locator("#alarms [aria-hidden]")).to_have_text("1")
        await expect(page.locator("#problems .strip.bad")).to_contain_text("<b>late</b> did not succeed within 5 s")
        await page.get_by_role("link", name="View problems").click()
        row = page.locator("#found tr[id^=incident]")
        await expect(row).to_contain_text("<b>late</b>")
        assert await browser.axe() == []
        await browser.live()
        await row.get_by_role("link", name="Edit").click()
        await page.fill("#url", f"{sink.url}/ok")
        await page.get_by_role("button", name="Save as revision 2").click()
        await page.wait_for_url("**/jobs/0*")
        await browser.live()
        await expect(page.locator("#incidents")).to_contain_text("recovered")
        await expect(page.locator("#alarms .badge")).to_have_count(0)


@pytest.mark.long
async def test_a_node_dies_and_the_map_of_partitions_changes(cluster: Nodes, browse: Any) -> None:
    watching = await cluster.start("serve")
    dying = await cluster.start("serve")
    async with browse(watching.url) as browser:
        page = browser.page
        await browser.open("/cluster")
        await browser.live()
        letter = await page.locator(f"#node-{dying.identities[0]} .letter").text_content()
        held = page.locator("#map .cell", has_text=letter or "?")
        await expect(page.locator("#nodes tbody tr")).to_have_count(2)
        await expect(held.first).to_be_visible()
        await dying.kill()
        await expect(held).to_have_count(0)
        await expect(page.locator("#map .no-leader")).to_have_count(0)
        await expect(page.locator("#elections")).to_contain_text("took")
        await browser.open("/cluster/problems")
        assert await browser.axe() == []


@pytest.mark.long
async def test_a_script_in_a_name_a_payload_an_error_or_a_tag_does_nothing(
    cluster: Nodes, sink: Sink, browse: Any
) -> None:
    script = "<script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"
    node = await cluster.start("serve")
    async with browse(node.url) as browser:
        page = browser.page
        fields = {"max_retries": "0", "tags": f"tag {script}".replace(",", "")}
        await browser.open("/jobs/new")
        await page.fill("#tags", fields["tags"])
        await page.fill("#payload", f'{{"text": {_json(script)}}}')
        await page.fill("#name", f"job {script}")
        await page.get_by_text("Interval", exact=True).click()
        await page.fill("#every", "2s")
        await page.fill("#url", f"{sink.url}/fail/9")
        await page.locator("details:has(#max_retries)").evaluate("element => element.setAttribute('open', '')")
        await page.fill("#max_retries", "0")
        await page.get_by_role("button", name="Create job").click()
        await page.wait_for_url("**/jobs/0*")
        job = page.url.removeprefix(node.url)
        dead = page.locator("#recent tr:has(.s-dead) a").first
        await expect(dead).to_be_visible()
        run = await dead.get_attribute("href")
        for path in ("/", "/jobs", "/runs", "/timeline", "/dead-letters", job, f"{job}/edit", run or ""):
            await browser.open(path)
            await page.wait_for_load_state("networkidle") if path.endswith("/edit") else await browser.live()
            assert await page.title() != "stolen", path
            assert await page.locator("main img").count() == 0


def _json(text: str) -> str:
    import json

    return json.dumps(text)


@pytest.mark.long
async def test_a_login_with_a_read_key(cluster: Nodes, browse: Any, store: Store) -> None:
    key = await store.keys.add("read", tenant=DEFAULT_TENANT)
    node = await cluster.start("serve", host="0.0.0.0")
    async with browse(node.url.replace("0.0.0.0", "127.0.0.1")) as browser:
        page = browser.page

        async def log_in() -> None:
            await page.wait_for_url("**/login?next=/jobs")
            await page.fill("#key", key.key)
            await page.get_by_role("button", name="Log in").click()
            await page.wait_for_url("**/jobs")
            await browser.live()

        await browser.open("/jobs")
        await page.wait_for_url("**/login?next=/jobs")
        assert await browser.axe() == []
        await log_in()
        assert await page.get_by_role("link", name="New job").count() == 0
        assert await browser.axe() == []
        await page.get_by_role("button", name="Log out").click()
        await page.wait_for_url("**/login")
        await browser.open("/jobs")
        await log_in()
        await store.keys.revoke(key.id, tenant=DEFAULT_TENANT)
        await page.wait_for_url("**/login?next=/jobs")  # without a click
