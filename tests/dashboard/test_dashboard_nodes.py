"""A killed node and a leaving node, on a desktop and on a phone."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest
from playwright.async_api import expect

from detent.domain.identity import node_name
from tests.dashboard.pages import Pages
from tests.support.browsing import PATIENCE, new_tab, running_chromium
from tests.support.factories import add_node
from tests.support.processes import Nodes

expect.set_options(timeout=PATIENCE)

WIDTHS = (1280, 400)


@pytest.mark.long
async def test_a_killed_node_stays_in_the_table_and_is_a_problem(cluster: Nodes) -> None:
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
            await expect(problem).to_have_count(1)  # a node that left cleanly is not a problem
            sentence = (
                rf"Node {lost} stopped answering at \d\d:\d\d:\d\d UTC; node {taker} took over its \d+ partitions"
            )
            await expect(problem).to_contain_text(re.compile(sentence))
            assert await tab.axe() == []
            assert await tab.overflows() == 0
        await tabs[0].page.get_by_role("button", name="Dismiss").click()
        await expect(tabs[1].page.locator("#found article.problem")).to_have_count(0)
        await tabs[1].open("/cluster")
        await expect(tabs[1].page.locator(f"#node-{lost} .s-lost")).to_be_visible()


async def test_a_lost_node_and_its_successor_are_shown_until_dismissed(pages: Pages, sql: Any) -> None:
    lost, taker = node_name(21), node_name(22)
    for node in (21, 22):
        await add_node(sql, node)
    await pages.store.nodes.take(21, 1, dict.fromkeys(range(256)))
    await sql.execute("UPDATE nodes SET started_at = now() - interval '1 h'")
    await sql.execute("UPDATE nodes SET expires_at = now() - interval '1 s' WHERE node = 21")
    assert await pages.store.nodes.evict_expired() == [21]
    await pages.store.nodes.take(22, 1, dict.fromkeys(range(256)))
    await pages.store.nodes.delete(21)
    shown = (await pages.get("/cluster")).text
    assert f'id="node-{lost}"' in shown
    assert "took 256 partitions" in shown
    problems = await pages.get("/cluster/problems")
    assert f"Node {lost} stopped answering at" in problems.text
    assert f"node {taker} took over its 256 partitions after" in problems.text
    assert (await pages.post(f"/cluster/nodes/{lost}/dismiss", csrf=problems.csrf)).status == 200
    assert "stopped answering" not in (await pages.get("/cluster/problems")).text
