"""Handlers of real nodes that enqueue, in threads and in processes of their own, and a script that waits for them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from tests.support.processes import Nodes, environment
from tests.system.test_app import write

SHOP = """
    from dataclasses import dataclass

    from detent import Detent, Discard, Run

    app = Detent("shop")

    @dataclass
    class Order:
        number: int
        items: list[str]

    @app.task
    def pack(order: Order) -> int:
        return len(order.items)

    @app.task
    async def ship(number: int) -> str:
        packed = await pack.enqueue(Order(number, ["a", "b"]))
        return packed.id

    @app.task(isolate="process")
    def ship_apart(run: Run, number: int) -> str:
        return pack.enqueue_sync(Order(number, ["c"])).id

    @app.task(isolate="process")
    def discard(why: str) -> None:
        raise Discard(why)
"""

SCRIPT = """
    from detent.errors import RunFailed
    from shop.jobs import Order, discard, pack, ship, ship_apart

    print(pack.delay(Order(1, ["x"])).result(60))
    for task in (ship, ship_apart):
        print(pack.handle_sync(task.enqueue_sync(number=7).result(60)).result(60))
    try:
        discard.enqueue_sync("not wanted").result(60)
    except RunFailed as error:
        print(error.status, error.message.partition(": ")[2])
"""


async def test_handlers_and_scripts_enqueue_with_the_same_code(
    cluster: Nodes, tmp_path: Path, database_url: str
) -> None:
    folder: Any = cluster.folder
    write(folder, "shop", SHOP)
    write(folder, "script", SCRIPT)
    node = await cluster.start("serve", "--app", "shop.jobs:app")
    for way in ({"DETENT_API_URL": node.url}, {"DETENT_DATABASE_URL": database_url}):
        script = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "script.jobs", cwd=folder, env=environment(tmp_path, **way),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await script.communicate()
        assert (out.decode().split("\n")[:-1], err.decode()) == (
            ["1", "2", "1", "cancelled discarded: not wanted."],
            "",
        )
