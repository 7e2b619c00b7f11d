"""An embedded node in the process of the test: its start, its end, and what it leaves alone."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import structlog
from starlette.applications import Starlette
from starlette.routing import Mount

from detent import Detent, Run
from detent.contrib.asgi import EmbeddedNode, combine
from detent.errors import Unavailable, UsageError
from tests.support.postgres import Postgres
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def own_structlog() -> Any:
    """As in a process of another program, which has not configured it."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture
def jobs() -> Detent:
    app = Detent("embedded")

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    return app


def embedded(jobs: Detent, database_url: str, **options: Any) -> EmbeddedNode:
    return EmbeddedNode(jobs, database_url=database_url, **options)


@asynccontextmanager
async def asking(node: EmbeddedNode, path: str = "/detent") -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application in which it is mounted, on this machine."""
    web = Starlette(routes=[Mount(path, node.dashboard)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://localhost") as client:
        yield client


async def no_thread_left() -> None:
    names = {"detent-node", "detent-handlers"}
    await until(lambda: not names & {each.name for each in threading.enumerate()}, 30, "the threads of the node to end")


async def test_a_task_runs_beside_the_application(jobs: Detent, database_url: str) -> None:
    async with embedded(jobs, database_url).lifespan():
        handle = await jobs.tasks["double"].enqueue(21)
        assert await handle.result(timeout=30) == 42


async def test_an_application_starts_and_stops_the_same_node_again(jobs: Detent, database_url: str) -> None:
    node = embedded(jobs, database_url)
    for _ in range(2):
        async with node.lifespan():
            handle = await jobs.tasks["double"].enqueue(1)
            assert await handle.result(timeout=30) == 2
    await no_thread_left()


async def test_a_loop_that_is_blocked_does_not_delay_the_node(jobs: Detent, database_url: str) -> None:
    async with embedded(jobs, database_url).lifespan():
        handle = jobs.tasks["double"].enqueue_sync(4)
        assert handle.result(timeout=30) == 8  # the loop of this test waits here


async def test_a_handler_may_have_its_own_process(database_url: str) -> None:
    async with embedded(named_by_its_module, database_url).lifespan():
        handle = await named_by_its_module.tasks["process-of"].enqueue()
        assert await handle.result(timeout=60) != os.getpid()


async def test_a_node_runs_once_at_a_time(jobs: Detent, database_url: str) -> None:
    node = embedded(jobs, database_url)
    async with node.lifespan():
        with pytest.raises(UsageError, match="This node runs already"):
            async with node.lifespan():
                pass
        assert await (await jobs.tasks["double"].enqueue(1)).result(timeout=30) == 2


def process_wide() -> tuple[object, ...]:
    signals = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    return signals, gc.get_threshold(), gc.get_freeze_count(), logging.root.level


async def test_what_belongs_to_the_process_is_left_alone(jobs: Detent, database_url: str) -> None:
    before, streams, handlers = process_wide(), (sys.stdout, sys.stderr), logging.root.handlers[:]
    async with embedded(jobs, database_url).lifespan():
        await (await jobs.tasks["double"].enqueue(1)).result(timeout=30)
        assert process_wide() == before
    assert process_wide() == before
    # They are wrapped and extended while the node runs, which keeps what its runs print and log.
    assert ((sys.stdout, sys.stderr), logging.root.handlers) == (streams, handlers)


async def test_warnings_of_an_application_without_handlers_still_reach_stderr(
    jobs: Detent, database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    async with embedded(jobs, database_url).lifespan():
        logging.getLogger("shop").warning("out of tea")
    assert capsys.readouterr().err.count("out of tea") == 1


@pytest.fixture
def default_level() -> Iterator[None]:
    """The root logger has the level that it has in a new process, whatever ran in this one."""
    before = logging.root.level
    logging.root.setLevel(logging.WARNING)
    yield
    logging.root.setLevel(before)


@pytest.mark.usefixtures("default_level")
@pytest.mark.parametrize(
    ("handlers", "kept"), [([], {"from a module"}), ([logging.NullHandler()], set())], ids=["plain", "configured"]
)
async def test_lines_of_a_run_are_kept_with_it(
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    handlers: list[logging.Handler],
    kept: set[str],
) -> None:
    """Those of loggers from INFO on, unless the application has configured the root logger: then its level counts."""
    monkeypatch.setattr(logging.root, "handlers", handlers)
    app = Detent("talking")

    @app.task
    def talk(run: Run) -> None:
        run.log.info("half done")
        logging.getLogger("shop.orders").info("from a module")
        logging.getLogger("shop.orders").debug("a detail")
        print("nearly done")  # noqa: T201 - as handlers do

    before = process_wide()
    node = embedded(app, database_url)
    async with node.lifespan(), asking(node) as client:
        handle = await talk.enqueue()
        await handle.result(timeout=30)

        async def lines() -> bool:
            items = (await client.get(f"/detent/api/v1/runs/{handle.id}/logs")).json()["items"]
            return {item["message"] for item in items} == {"half done", "nearly done"} | kept

        await until(lines, 30, "the lines to be stored")
    assert process_wide() == before
    assert "from a module" not in capsys.readouterr().err, "what is not configured still writes warnings only"


async def test_lines_of_the_node_go_to_the_logging_of_the_application(
    jobs: Detent, database_url: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, logger="detent")
    async with embedded(jobs, database_url).lifespan():
        pass
    joined = [record for record in caplog.records if record.getMessage().startswith("joined")]
    assert [(record.name, record.levelname) for record in joined] == [("detent.node", "INFO")]
    assert capfd.readouterr().out == ""


async def refused(node: EmbeddedNode) -> str:
    with pytest.raises((UsageError, Unavailable)) as caught:
        async with node.lifespan():
            pytest.fail("the application started")
    await no_thread_left()
    return caught.value.message


async def test_a_database_that_is_away_keeps_the_application_from_starting(jobs: Detent) -> None:
    message = await refused(embedded(jobs, "postgresql://detent@127.0.0.1:9/none"))
    assert "127.0.0.1:9" in message


async def test_a_database_without_tables_is_refused_with_the_command_to_run(jobs: Detent, postgres: Postgres) -> None:
    with postgres.database_apart("template1") as url:
        assert "detent db migrate" in await refused(embedded(jobs, url))


async def test_a_setting_that_does_not_fit_keeps_the_application_from_starting(jobs: Detent, database_url: str) -> None:
    assert "concurrency" in await refused(embedded(jobs, database_url, concurrency=0))
    assert "concurency" in await refused(embedded(jobs, database_url, settings={"concurency": 3}))


def test_one_queue_as_text_is_refused(jobs: Detent, database_url: str) -> None:
    with pytest.raises(UsageError, match=r"queues is 'mail': give a list, such as queues=\['mail'\]"):
        embedded(jobs, database_url, queues="mail")


async def test_a_worker_of_an_app_without_jobs_is_refused(database_url: str) -> None:
    assert "has no jobs and no tasks" in await refused(embedded(Detent("empty"), database_url))


async def test_an_app_without_a_name_is_refused(database_url: str) -> None:
    app = Detent()
    app.task(double_of)
    assert "write Detent('shop')" in await refused(embedded(app, database_url))


def double_of(number: int) -> int:
    return 2 * number


named_by_its_module = Detent()
named_by_its_module.task(double_of)


@named_by_its_module.task(isolate="process")
def process_of() -> int:
    return os.getpid()


async def test_an_app_is_named_by_its_module_as_a_worker_apart_names_it(database_url: str) -> None:
    async with embedded(named_by_its_module, database_url).lifespan():
        assert named_by_its_module.name == f"{__name__}:named_by_its_module"


async def test_lifespans_are_joined_and_so_is_their_state(jobs: Detent, database_url: str) -> None:
    seen: list[str] = []

    def own(name: str) -> Callable[[Any], Any]:
        @asynccontextmanager
        async def lifespan(web: Any) -> AsyncIterator[dict[str, str]]:
            seen.append(f"{name} begins")
            yield {name: "ready"}
            seen.append(f"{name} ends")

        return lifespan

    node = embedded(jobs, database_url)
    async with combine(own("first"), node.lifespan, own("second"))(None) as state:
        assert state == {"first": "ready", "second": "ready"}
        assert await (await jobs.tasks["double"].enqueue(3)).result(timeout=30) == 6
    assert seen == ["first begins", "second begins", "second ends", "first ends"]


async def test_a_start_that_is_cancelled_leaves_no_node(jobs: Detent, database_url: str) -> None:
    async def start() -> None:
        async with embedded(jobs, database_url).lifespan():
            await asyncio.Event().wait()

    starting = asyncio.create_task(start())
    await until(lambda: any(each.name == "detent-node" for each in threading.enumerate()), 30, "the node to begin")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await no_thread_left()


# --- the dashboard and the API ---


async def test_the_api_and_the_dashboard_answer_under_the_path_of_the_mount(jobs: Detent, database_url: str) -> None:
    node = embedded(jobs, database_url)
    async with node.lifespan(), asking(node) as client:
        found = (await client.get("/detent/api/v1/jobs")).json()["items"]
        assert [job["name"] for job in found] == ["double"]
        page = await client.get("/detent/jobs")
        assert page.status_code == 200
        assert f'href="/detent/jobs/{found[0]["id"]}"' in page.text
        assert 'href="/jobs' not in page.text
        target = {"type": "http", "url": "http://127.0.0.1:9/"}
        made = await client.post("/detent/api/v1/jobs", json={"name": "other", "target": target})
        assert made.headers["location"] == f"/detent/api/v1/jobs/{made.json()['id']}"


async def test_an_application_without_worker_and_scheduler_serves_them_alone(jobs: Detent, database_url: str) -> None:
    node = embedded(jobs, database_url, worker=False, scheduler=False)
    async with node.lifespan(), asking(node) as client:
        assert (await client.get("/detent/readyz")).json() == {"status": "ready"}
        assert (await client.get("/detent/api/v1/cluster")).json()["nodes"] == []
        assert (await client.get("/detent/")).status_code == 200


async def test_a_mount_without_a_running_node_says_what_is_missing(jobs: Detent, database_url: str) -> None:
    async with asking(embedded(jobs, database_url)) as client:
        answer = await client.get("/detent/jobs")
    assert (answer.status_code, "lifespan=node.lifespan" in answer.text) == (503, True)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
async def test_a_request_through_a_proxy_needs_a_key(jobs: Detent, database_url: str, header: str) -> None:
    node = embedded(jobs, database_url)
    async with node.lifespan(), asking(node) as client:
        assert (await client.get("/detent/api/v1/jobs")).status_code == 200
        answer = await client.get("/detent/api/v1/jobs", headers={header: "for=127.0.0.1"})
        assert answer.status_code == 401
        page = await client.get("/detent/jobs", headers={header: "for=127.0.0.1"})
        assert (page.status_code, page.headers["location"]) == (303, "/detent/login?next=/jobs")


async def test_a_change_from_another_origin_is_refused(jobs: Detent, database_url: str) -> None:
    node = embedded(jobs, database_url)
    async with node.lifespan(), asking(node) as client:
        answer = await client.post("/detent/cluster/pause", headers={"Origin": "http://evil.example"})
        assert answer.status_code == 403
        assert (await client.post("/detent/cluster/pause", data={"csrf": "guessed"})).status_code == 403
        assert (await client.get("/detent/jobs", headers={"Host": "evil.example"})).status_code == 421


async def test_a_login_stays_under_the_path_of_the_mount(jobs: Detent, database_url: str) -> None:
    node = embedded(jobs, database_url)
    async with node.lifespan(), asking(node) as client:
        created = await client.post("/detent/api/v1/keys", json={"name": "ada", "scope": "admin"})
        assert (await client.get("/detent/jobs")).headers["location"] == "/detent/login?next=/jobs"
        login = await client.post("/detent/login", data={"key": created.json()["key"], "next": "/jobs"})
        assert (login.status_code, login.headers["location"]) == (303, "/detent/jobs")
        assert "path=/detent/;" in login.headers["set-cookie"].lower().replace(" ", "")
        assert (await client.get("/detent/jobs")).status_code == 200
