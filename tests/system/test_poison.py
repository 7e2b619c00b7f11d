"""A handler that ends its process takes its neighbours with it: it is given up, and they are not."""

from __future__ import annotations

import asyncio
import contextlib
import textwrap
from pathlib import Path
from typing import Any

from detent.errors import Unavailable
from tests.support.processes import Node, Nodes
from tests.support.waiting import until

CALM = 5
MAX_DEATHS = 20
APP = """
    import asyncio
    import os

    from detent import Detent, Run

    app = Detent("ward")

    @app.job(every="1h")
    def poison(run: Run) -> None:
        os._exit(1)

    async def rest(run: Run) -> str:
        await asyncio.sleep(2)
        return "calm"

    for number in range(5):
        app.job(name=f"calm-{number}", every="1h")(rest)
"""


def write(folder: Path) -> None:
    (folder / "ward").mkdir()
    (folder / "ward" / "__init__.py").touch()
    (folder / "ward" / "jobs.py").write_text(textwrap.dedent(APP))


async def outcomes(look: Any) -> dict[str, tuple[str, str | None]]:
    rows = await look.fetch("SELECT j.name, r.status, r.reason FROM runs r JOIN jobs j USING (job)")
    return {row["name"]: (row["status"], row["reason"]) for row in rows}


async def test_a_handler_that_ends_its_process_is_given_up_and_its_neighbours_are_not(
    cluster: Nodes, folder: Path, look: Any
) -> None:
    write(folder)
    node = await cluster.start("serve", "--app", "ward.jobs:app")
    for number in range(CALM):
        node.client.trigger_job(f"calm-{number}")
    await until(
        lambda: look.fetchval("SELECT count(*) = $1 FROM runs WHERE status = 'running'", CALM), what="calm runs"
    )
    with contextlib.suppress(Unavailable):
        node.client.trigger_job("poison")

    async def over() -> bool:
        return bool(await look.fetchval("SELECT count(*) = $1 FROM run_history", CALM + 1))

    deaths = 0
    while deaths < MAX_DEATHS and not await died_before(node, over):
        deaths += 1
        node = await cluster.start("serve", "--app", "ward.jobs:app")
    found = await outcomes(look)
    assert found.pop("poison") == ("dead", "lost")
    assert found == {f"calm-{number}": ("succeeded", None) for number in range(CALM)}


async def died_before(node: Node, over: Any) -> bool:
    """Whether all was over before the node died."""
    ended, finished = asyncio.create_task(node.ended(120)), asyncio.create_task(until(over, 120, "the end of all runs"))
    done, others = await asyncio.wait((ended, finished), return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    return finished in done
