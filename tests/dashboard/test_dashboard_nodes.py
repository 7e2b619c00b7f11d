"""A node that is killed and one that leaves, as a person sees it on a desktop and on a phone."""

from __future__ import annotations

import re
import signal

import pytest
from browsing import PATIENCE, new_tab, running_chromium
from playwright.async_api import expect
from processes import Nodes

expect.set_options(timeout=PATIENCE)

WIDTHS = (1280, 400)


@pytest.mark.long
async def test_a_node_that_was_killed_stays_in_the_table_and_among_the_problems(cluster: Nodes) -> None:
    watching = await cluster.start("serve")
    dying = await cluster.start("serve")
    leaving = await cluster.start("worker")
    lost, left, taker = dying.identities[0], leaving.identities[0], watching.identities[0]
    async with running_chromium() as chrome:
        tabs = [await new_tab(chrome, watching.url, width=width, height=900) for width in WIDTHS]
        for tab in tabs:
            await tab.open("/cluster")
            await tab.live()
            await expect(tab.page.locator("#nodes tbody tr")).to_have_count(3)
        await dying.kill()
        leaving.send(signal.SIGTERM)
        await leaving.ended()
        for tab in tabs:
            row = tab.page.locator(f"#node-{lost}")
            await expect(row.locator(".s-lost")).to_be_visible()
            await expect(row).to_contain_text(re.compile(rf"{taker[:8]} took \d+ partitions"))
            await expect(tab.page.locator(f"#node-{left} .s-left")).to_be_visible()
            assert await tab.axe() == []
            assert await tab.overflows() == 0
            await tab.open("/cluster/problems")
            problem = tab.page.locator("#found article.problem")
            await expect(problem).to_have_count(1)  # who left in good order is no problem
            told = rf"Node {lost} stopped answering at \d\d:\d\d:\d\d UTC; node {taker} took over its \d+ partitions"
            await expect(problem).to_contain_text(re.compile(told))
            assert await tab.axe() == []
            assert await tab.overflows() == 0
        await tabs[0].page.get_by_role("button", name="Dismiss").click()
        await expect(tabs[1].page.locator("#found article.problem")).to_have_count(0)
        await tabs[1].open("/cluster")
        await expect(tabs[1].page.locator(f"#node-{lost} .s-lost")).to_be_visible()
