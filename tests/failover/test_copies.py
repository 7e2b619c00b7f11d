"""Copies of a database: they do nothing until an operator adopts them, and the original continues."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from detent.cluster.admission import AdmissionCheck, DatabaseOrigin, SuspectedCopy, classify, why_held
from detent.store.original import DatabaseIdentity, PhysicalIdentity
from detent.store.pull import Wanted
from tests.failover.database_servers import Process, Servers, opened
from tests.support.factories import add_job, add_live_run
from tests.support.fleet.servers import DATABASE, USER, Server, Session
from tests.support.processes import Node, environment
from tests.support.waiting import until

MINUTE = timedelta(minutes=1)
RUNS = "SELECT count(*) FROM run_history WHERE status = 1"
EVERYTHING = "SELECT (SELECT count(*) FROM run_history) + (SELECT count(*) FROM live_runs WHERE owner IS NOT NULL)"


async def ask(url: str, question: str, *arguments: Any) -> Any:
    async with Session(url) as session:
        return await session.fetchval(question, *arguments)


def url_in(server: Server, database: str) -> str:
    return f"{server.url.rpartition('/')[0]}/{database}"


def place_of(server: Server) -> tuple[str, ...]:
    return ("-h", "127.0.0.1", "-p", str(server.port), "-U", USER)


def dump(server: Server, folder: Path) -> Path:
    file = folder / "dump"
    command: list[str | Path] = [
        server.binaries / "pg_dump",
        "-h",
        "127.0.0.1",
        "-p",
        str(server.port),
        "-U",
        USER,
        "-Fc",
        "-f",
        file,
    ]
    subprocess.run([*command, DATABASE], check=True)
    return file


async def restore(server: Server, file: Path, name: str) -> str:
    """The URL of a new database with what was dumped."""
    async with server.session() as session:
        await session.execute(f"CREATE DATABASE {name}")
    command: list[str | Path] = [
        server.binaries / "pg_restore",
        "-h",
        "127.0.0.1",
        "-p",
        str(server.port),
        "-U",
        USER,
        "-d",
        name,
    ]
    subprocess.run([*command, file], check=True)
    return url_in(server, name)


async def make_jobs(url: str) -> None:
    async with Session(url) as session:
        now = await session.fetchval("SELECT now()")
        for _ in range(3):
            await add_job(session, now, every="every 1s")


def detent(*arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    environ = environment(Path("/"), DETENT_DATABASE_URL=url)
    command = [sys.executable, "-m", "detent", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL)


async def test_a_dump_of_a_running_cluster_restored_beside_it_does_nothing_until_it_is_adopted(
    servers: Servers, folder: Path
) -> None:
    primary = await servers.primary()
    await make_jobs(primary.url)
    async with opened(primary.url) as store, Process(store) as original:
        await until(lambda: ask(primary.url, f"SELECT ({RUNS}) > 3"), 20, "the original to run")
        copy = await restore(primary, dump(primary, folder), "copy")
        async with Session(copy) as session:
            await add_live_run(session, (await session.fetchval("SELECT min(job) FROM jobs")), lane=3)
        begun = await ask(copy, EVERYTHING)
        async with opened(copy) as copied, Process(copied) as process:
            await until(lambda: len(process.refusals) > 3, 20, "the copy to be looked at more than once")
            assert process.session is None
            assert process.refusals[0] == (
                "This database may be a copy: its data was restored on this server (the database or its tables "
                "have new ids). Nothing fires or runs from it, so that nothing is done twice. If the original is "
                "gone, or this database is to run on its own, run `detent db adopt`."
            )
            worker = await copied.pull.worker(1, "a worker")
            assert await copied.pull.claim(1, worker, Wanted("default", ("",), True), 10, MINUTE) == []
            assert await ask(copy, EVERYTHING) == begun
            runs = await ask(primary.url, RUNS)
            await until(lambda: ask(primary.url, f"SELECT ({RUNS}) > {runs}"), 20, "the original to go on")

            said = detent("db", "adopt", url=copy)
            assert said.returncode == 2
            assert "confirm with --yes" in said.stderr
            said = detent("db", "adopt", "--yes", url=copy)
            assert said.returncode == 0, said.stderr
            assert "Adopted as incarnation" in said.stderr

            await until(lambda: process.session, 20, "a node to join the adopted copy")
            await until(lambda: ask(copy, f"SELECT ({EVERYTHING}) > {begun}"), 20, "the adopted copy to run")
        assert original.session is not None
        assert not original.session.membership.lost.is_set()
    incarnations = [await ask(url, "SELECT incarnation FROM cluster") for url in (primary.url, copy)]
    assert incarnations[0] == 1 < incarnations[1]
    ids = [await ask(url, "SELECT id FROM cluster") for url in (primary.url, copy)]
    assert ids[0] != ids[1]
    said = detent("db", "adopt", url=copy)
    assert (said.returncode, said.stderr) == (0, "There is nothing to adopt in this database: it is the original.\n")


async def test_a_dump_restored_on_another_server_is_held(servers: Servers, folder: Path) -> None:
    primary, other = await servers.primary(), await servers.primary("other")
    await make_jobs(primary.url)
    copy = await restore(other, dump(primary, folder), "copy")
    # Servers of these tests come from the same files; others have identifiers of their own.
    await ask(copy, "UPDATE cluster SET system_identifier = system_identifier + 1")
    async with opened(copy) as store:
        with pytest.raises(SuspectedCopy, match="it was created on another server"):
            await AdmissionCheck(store, 0).admit()


async def test_a_database_made_from_another_as_its_template_is_held(servers: Servers) -> None:
    primary = await servers.primary()
    await make_jobs(primary.url)
    await ask(url_in(primary, "postgres"), f"CREATE DATABASE copy TEMPLATE {DATABASE}")
    async with opened(url_in(primary, "copy")) as store:
        with pytest.raises(SuspectedCopy, match="its data was restored on this server"):
            await AdmissionCheck(store, 0).admit()


async def test_files_that_were_recovered_after_a_long_time_are_held_and_after_a_short_one_are_not(
    servers: Servers,
) -> None:
    primary = await servers.primary()
    late, soon = await servers.standby(primary, "late"), await servers.standby(primary, "soon")
    await make_jobs(primary.url)
    await ask(primary.url, "UPDATE cluster SET beat_at = now()")
    for standby in (late, soon):
        await until(lambda standby=standby: ask(standby.url, "SELECT beat_at FROM cluster"), 20, "it to follow")
        await standby.promote()
    await ask(late.url, "UPDATE cluster SET beat_at = now() - interval '3 hours'")
    async with opened(soon.url) as store:
        assert (await AdmissionCheck(store, 0).admit()).server.timeline == 2
    async with opened(late.url) as store:
        with pytest.raises(SuspectedCopy, match="on the new timeline 2, and no node has sent a heartbeat for 3 hours"):
            await AdmissionCheck(store, 0).admit()


async def test_the_last_heartbeat_is_known_also_after_the_last_node_has_left(servers: Servers) -> None:
    primary = await servers.primary()
    async with opened(primary.url) as store, Process(store) as process:
        await until(lambda: process.session, 20)
    assert await ask(primary.url, "SELECT count(*) FROM nodes") == 0
    assert await ask(primary.url, "SELECT now() - beat_at < interval '1 minute' FROM cluster")


async def test_a_copy_without_jobs_is_a_copy_of_no_cluster(servers: Servers) -> None:
    primary = await servers.primary()
    await ask(url_in(primary, "postgres"), f"CREATE DATABASE copy TEMPLATE {DATABASE}")
    copy = url_in(primary, "copy")
    said = detent("db", "adopt", url=copy)
    assert "nothing to adopt in this database: it has no jobs" in said.stderr
    async with opened(copy) as store:
        await AdmissionCheck(store, 0).examine()  # before the first job is added
    await make_jobs(copy)
    async with opened(copy) as store:
        assert (await AdmissionCheck(store, 0).admit()).incarnation > 1


async def test_a_node_on_a_copy_answers_and_says_what_is_wrong(servers: Servers, folder: Path) -> None:
    primary = await servers.primary()
    await make_jobs(primary.url)
    copy = await restore(primary, dump(primary, folder), "copy")
    settings = {"DETENT_DATABASE_URL": copy, "DETENT_LEASE_TTL_SECONDS": "1.5"}
    node = Node(folder, "copy", ["serve", "--port", "0"], environment(folder, **settings))
    try:
        await node.ready()
        assert node.client.list_jobs().page()["items"]
        ready = node.client.readiness()
        assert ready["status"] == "not ready"
        assert not ready["checks"]["original"]["ok"]
        assert any("until it is adopted" in problem for problem in node.client.get_cluster()["problems"])
        told = json.loads(detent("doctor", "--json", url=copy).stdout)
        (finding,) = (one for one in told["checks"] if one["check"] == "original")
        assert finding["status"] == "fail"
        assert "detent db adopt" in finding["advice"]
        assert await ask(copy, "SELECT count(*) FROM nodes") == 0
        assert node.text.count("This database may be a copy") == 1
        assert detent("db", "adopt", "--yes", url=copy).returncode == 0
        await until(lambda: ask(copy, "SELECT count(*) FROM runs"), 20, "the adopted copy to fire")
        await until(lambda: node.client.readiness()["status"] == "ready", 20, "it to be ready")
    finally:
        node.close()


# --- the decision, from facts alone ---

THERE = PhysicalIdentity(1, 2, 3, 4)


def identity(present: PhysicalIdentity, silence: timedelta | None = MINUTE, used: bool = True) -> DatabaseIdentity:
    return DatabaseIdentity(UUID(int=1), 7, THERE, present, silence, used)


@pytest.mark.parametrize(
    ("found", "origin"),
    [
        (identity(THERE), DatabaseOrigin.ORIGINAL),
        (identity(THERE, silence=None), DatabaseOrigin.ORIGINAL),
        (identity(THERE, silence=timedelta(days=400)), DatabaseOrigin.ORIGINAL),
        (identity(THERE._replace(timeline=5)), DatabaseOrigin.FAILED_OVER),
        (identity(THERE._replace(timeline=9), silence=9 * MINUTE), DatabaseOrigin.FAILED_OVER),
        (identity(THERE._replace(timeline=5), silence=-5 * MINUTE), DatabaseOrigin.FAILED_OVER),
        (identity(THERE._replace(timeline=5), silence=11 * MINUTE), DatabaseOrigin.HELD),
        (identity(THERE._replace(timeline=5), silence=-11 * MINUTE), DatabaseOrigin.HELD),
        (identity(THERE._replace(timeline=5), silence=None), DatabaseOrigin.HELD),
        (identity(THERE._replace(timeline=3)), DatabaseOrigin.HELD),
        (identity(THERE._replace(system=9)), DatabaseOrigin.HELD),
        (identity(THERE._replace(database=9)), DatabaseOrigin.HELD),
        (identity(THERE._replace(table=9)), DatabaseOrigin.HELD),
        (identity(THERE._replace(database=9, timeline=5)), DatabaseOrigin.HELD),
        (identity(THERE._replace(system=9), used=False), DatabaseOrigin.UNUSED),
        (identity(THERE._replace(timeline=5), silence=None, used=False), DatabaseOrigin.UNUSED),
    ],
)
def test_what_is_decided_about_a_database(found: DatabaseIdentity, origin: DatabaseOrigin) -> None:
    assert classify(found) is origin


def test_why_a_database_is_held_is_said_in_half_a_sentence() -> None:
    assert "another server" in why_held(identity(THERE._replace(system=9, timeline=9)))
    assert "restored on this server" in why_held(identity(THERE._replace(table=9)))
    assert "on timeline 3, although it was already on 4" in why_held(identity(THERE._replace(timeline=3)))
    assert "no node has ever sent a heartbeat" in why_held(identity(THERE._replace(timeline=5), silence=None))
    assert "for 1 minute" in why_held(identity(THERE._replace(timeline=5), silence=MINUTE))
    assert "for 90 minutes" in why_held(identity(THERE._replace(timeline=5), silence=90 * MINUTE))
