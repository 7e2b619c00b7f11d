"""The applications in examples/, as real processes on a real PostgreSQL."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import httpx

from tests.contrib.asgi.web_process import EXAMPLES, WebProcess, uvicorn
from tests.support.ports import free_port
from tests.support.processes import Nodes
from tests.support.waiting import until

ORDERS = range(40)


def receipts(folder: Path) -> Counter[str]:
    """How many lines each receipt has: one for each time that its order was prepared."""
    lines = {file.stem: file.read_text().splitlines() for file in (folder / "receipts").glob("*.txt")}
    return Counter({name: len(found) for name, found in lines.items()})


async def test_a_route_enqueues_and_another_one_polls_the_result(tmp_path: Path, database_url: str) -> None:
    async with uvicorn(tmp_path, "fastapi", "embedded:web", DETENT_DATABASE_URL=database_url) as web:
        [run] = await web.order(7)
        assert await web.finished(run) == {"status": "succeeded", "receipt": {"number": 7, "text": "1 x tea"}}
        await web.terminate()


async def cut_off_and_resume(folder: Path, database_url: str, **first: str) -> None:
    """Stop the application while it prepares orders, start it again, and wait until all are prepared."""
    variables = {"DETENT_DATABASE_URL": database_url, "DETENT_CONCURRENCY": "5"}
    async with uvicorn(folder, "fastapi", "embedded:web", **variables, **first) as web:
        runs = await web.order(*ORDERS)
        await until(lambda: receipts(folder), 30, "the first receipts")
        await web.terminate()
    assert 0 < receipts(folder).total() < len(ORDERS)

    async with uvicorn(folder, "fastapi", "embedded:web", **variables) as again:
        for number, run in zip(ORDERS, runs, strict=True):
            assert (await again.finished(run))["receipt"]["number"] == number
        assert (await again.get("/detent/api/v1/runs?search=status:pending,retrying,running")).json()["items"] == []
        await again.terminate()


async def test_a_shutdown_lets_runs_finish_and_loses_none(tmp_path: Path, database_url: str) -> None:
    await cut_off_and_resume(tmp_path, database_url)
    assert receipts(tmp_path) == Counter({str(number): 1 for number in ORDERS})


async def test_a_shutdown_that_cuts_runs_off_loses_none(tmp_path: Path, database_url: str) -> None:
    await cut_off_and_resume(tmp_path, database_url, DETENT_DRAIN_SECONDS="0")
    assert set(receipts(tmp_path)) == {str(number) for number in ORDERS}


async def test_a_worker_apart_runs_what_the_application_enqueues(tmp_path: Path, database_url: str) -> None:
    settings = {"DETENT_DATABASE_URL": database_url, "RECEIPTS": str(tmp_path / "receipts")}
    with closing(Nodes(tmp_path, **settings, PYTHONPATH=str(EXAMPLES / "fastapi"))) as nodes:
        worker = await nodes.start("serve", "--app", "orders_jobs:jobs", DETENT_CONCURRENCY="5")
        async with uvicorn(tmp_path, "fastapi", "apart:web", **settings) as web:
            runs = await web.order(*ORDERS)
            await until(lambda: receipts(tmp_path), 30, "the first receipts")
            worker.process.terminate()
            assert await worker.ended() == 0
            assert 0 < receipts(tmp_path).total() < len(ORDERS)
            await nodes.start("serve", "--app", "orders_jobs:jobs")
            for run in runs:
                await web.finished(run)
            await web.terminate()
    assert receipts(tmp_path) == Counter({str(number): 1 for number in ORDERS})


async def test_flask_enqueues_for_a_worker_apart(tmp_path: Path, database_url: str) -> None:
    source, settings = EXAMPLES / "flask", {"DETENT_DATABASE_URL": database_url}
    command = ("flask", "--app", "orders_flask:web", "run", "--port", str(free_port()))
    with closing(Nodes(tmp_path, **settings, PYTHONPATH=str(source))) as nodes:
        await nodes.start("serve", "--app", "orders_flask:jobs")
        async with WebProcess(tmp_path, source, *command, **settings) as web:
            [run] = await web.order(3)
            assert await web.finished(run) == {"status": "succeeded", "receipt": "3: 1 x tea"}


async def test_litestar_runs_a_worker_and_serves_the_dashboard(tmp_path: Path, database_url: str) -> None:
    settings = {"DETENT_DATABASE_URL": database_url}
    async with uvicorn(tmp_path, "litestar", "orders_litestar:web", **settings) as web:
        [run] = await web.order(3)
        assert await web.finished(run) == {"status": "succeeded", "receipt": "3: tea"}
        page = await web.get("/detent/jobs")
        assert 'href="/detent/jobs/' in page.text
        assert (await web.get(f"/detent/api/v1/runs/{run}")).json()["status"] == "succeeded"
        script = page.text.partition('src="/detent/static/app.js')
        assert script[1], "the page has no script"
        await web.terminate()


async def test_each_process_of_a_server_is_a_node(tmp_path: Path, database_url: str) -> None:
    settings = {"DETENT_DATABASE_URL": database_url}
    async with uvicorn(tmp_path, "fastapi", "embedded:web", "--workers", "2", **settings) as web:

        async def nodes() -> bool:
            try:
                answer = await web.get("/detent/api/v1/cluster")
            except httpx.TransportError:
                return False
            return len(answer.json()["nodes"]) == 2

        await until(nodes, 60, "both processes to join")
        await web.terminate()
