"""Commands: who may run them, what they can read of their node, and that nothing of them is left. Real processes."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detent.client import JsonClient
from detent.domain.job import JobSpec
from detent.domain.run import Call, Outcome, Succeeded
from detent.errors import UsageError
from detent.jobs import JobOperations
from detent.node.database import check_keys
from detent.node.session import Session
from detent.node.shell import refuse_owner, shell_access
from detent.settings.settings import Settings
from detent.store import Store
from detent.targets.shell import ShellTargetRunner
from detent.targets.shell_user import find_shell_user
from tests.support.factories import LONG_AGO
from tests.support.processes import Nodes
from tests.support.waiting import until
from tests.targets.target_helpers import children_of_ours, failed, is_alive, shell_call, succeeded

NOBODY = "nobody"
PATIENCE = 45.0
SECRET = "hunter2-in-the-environment"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: nothing is promised elsewhere")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can run commands as another user")

# Forks twice, opens its own session, empties its environment, closes its output, ignores what can be ignored.
SLEEPER = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    os.closerange(0, 3)
    os.execve("/bin/sleep", ["sleep", "1000"], {})
os.wait()
"""


@pytest.fixture(autouse=True)
def no_child_of_ours_is_left() -> Iterator[None]:
    before = children_of_ours()
    yield
    assert children_of_ours() <= before


@pytest.fixture
async def shell() -> AsyncIterator[ShellTargetRunner]:
    made = ShellTargetRunner({1: "default"}, grace_seconds=0.1)
    yield made
    await made.close()


@pytest.fixture
async def as_nobody() -> AsyncIterator[ShellTargetRunner]:
    made = ShellTargetRunner({1: "default"}, user=find_shell_user(NOBODY), grace_seconds=0.1)
    yield made
    await made.close()


@pytest.fixture
def nodes(database_url: str) -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as folder:
        variables = {"DETENT_DATABASE_URL": database_url, "DETENT_NOTIFY_SECRET": f"whsec_{'A' * 32}", "HIDDEN": SECRET}
        with closing(Nodes(Path(folder), **variables)) as started:
            yield started


def sleeper(file: Path, *ending: str) -> list[str]:
    """A command that leaves a process behind, which writes its number into the file."""
    program = SLEEPER + "\n".join(("import time", "while not os.path.exists(sys.argv[1]): time.sleep(0.01)", *ending))
    return [sys.executable, "-S", "-c", program, str(file)]


async def number_in(file: Path) -> int:
    await until(file.exists, PATIENCE, "the process that is left behind")
    return int(file.read_text())


# --- who may run commands ---


async def test_a_local_user_runs_no_commands_through_an_api_without_keys(nodes: Nodes) -> None:
    node = nodes.begin("serve", "--allow-shell", "default")
    assert await node.ended() == 2
    assert "`detent key create --local --scope admin`" in node.text
    assert "listening" not in node.text


async def test_no_worker_runs_commands_in_a_cluster_without_keys(store: Store) -> None:
    """A worker without an API too: another node may have one."""
    settings = Settings(allow_shell=("default",))
    with pytest.raises(UsageError, match="detent key create --local --scope admin"):
        await check_keys(settings, store, serves_api=False)
    assert settings.keys_required
    await store.keys.add("admin", tenant=1)
    await check_keys(settings, store, serves_api=False)
    assert (await shell_access(settings, ("worker",), store)).tenants == {1: "default"}
    assert (await shell_access(settings, ("api", "scheduler"), store)).tenants == {}


async def test_a_tenant_that_does_not_exist_is_refused_by_name(store: Store) -> None:
    await store.keys.add("admin", tenant=1)
    with pytest.raises(UsageError, match="names ops, yes, and there is no such tenant"):
        await shell_access(Settings(allow_shell=("default", "ops", "yes")), ("worker",), store)


async def test_commands_of_a_tenant_that_is_not_named_are_left_to_other_workers(store: Store, look: Any) -> None:
    await store.tenants.add("other")
    other = await store.tenants.number("other")
    assert other is not None
    called: list[str] = []

    async def runner(call: Call) -> Outcome:
        called.append(call.job)
        return Succeeded()

    for tenant, name in ((other, "theirs"), (1, "ours")):
        document = {"name": name, "schedule": "every 1h", "target": {"type": "shell", "command": "true"}}
        await JobOperations(store).registration.add([msgspec.convert(document, JobSpec)], tenant=tenant)
        await look.execute(
            "INSERT INTO live_runs (job, scheduled_at, token, not_before, queue, revision, lane, priority)"
            " SELECT job, $1, 1 << 22 | 1, $1, queue, 1, 0, 5 FROM cursors ORDER BY job DESC LIMIT 1",
            LONG_AGO,
        )
    session = Session(store, Settings(), ("scheduler", "worker"), {"shell": runner}, [], shell_tenants=[1])
    await session.open()
    try:
        await until(lambda: "ours" in called, PATIENCE, "the run of the named tenant")
        await until(lambda: look.fetchval("SELECT count(*) = 1 FROM live_runs"), PATIENCE, "its end")
        left = await look.fetchrow("SELECT jobs.name, live_runs.owner FROM live_runs JOIN jobs USING (job)")
    finally:
        await session.close(0)
    assert called == ["ours"]
    assert dict(left) == {"name": "theirs", "owner": None}


async def test_a_command_of_a_tenant_that_is_not_named_is_not_started(shell: ShellTargetRunner, tmp_path: Path) -> None:
    outcome = failed(await shell(shell_call(f"touch {tmp_path}/done", tenant=2)))
    assert outcome.error.startswith("This worker runs shell commands for the tenant default only: ")
    assert not outcome.retryable
    assert not (tmp_path / "done").exists()


# --- what a command can read ---


@linux_only
async def test_a_command_finds_no_secret_in_its_parent_and_does_not_outlive_its_node(
    nodes: Nodes, store: Store
) -> None:
    key = (await store.keys.add("admin", tenant=1)).key
    node = await nodes.start("serve", "--allow-shell", "default")
    file = nodes.folder / "pid"
    with closing(JsonClient(node.url, key=key)) as client:
        for name, command in (
            ("spy", "cat /proc/$PPID/environ /proc/$PPID/cmdline"),
            ("sleeper", sleeper(file, "time.sleep(1000)")),
        ):
            target = {"type": "shell", "command": command}
            client.create_job({"name": name, "schedule": "every 1h", "target": target, "max_retries": 0})
        run = client.trigger_job("spy")["id"]
        output = (await until(lambda: client.get_run(run)["result"], PATIENCE, "the run to end"))["output"]
        assert "postgresql://" not in output
        assert SECRET not in output
        assert "whsec_" not in output
        client.trigger_job("sleeper")
        pid = await number_in(file)
    await node.kill()
    await until(lambda: not is_alive(pid), PATIENCE, "the command to end with its node")


@linux_only
def test_processes_of_the_same_user_cannot_read_the_memory_of_a_hidden_one() -> None:
    program = """
import ctypes, os, pwd
from detent.targets.shell_user import hide_memory

def readable(name):
    if os.fork() == 0:
        try:
            open(f"/proc/{os.getppid()}/{name}", "rb").read(1)
        except PermissionError:
            os._exit(1)
        os._exit(0)
    return os.wait()[1] == 0

if os.geteuid() == 0:
    user = pwd.getpwnam("nobody")
    os.setgroups([]), os.setgid(user.pw_gid), os.setuid(user.pw_uid)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
before = readable("environ")
hide_memory()
print(before, readable("environ"), readable("maps"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True", "False", "False"], done.stderr


@linux_only
async def test_a_command_cannot_gain_privileges(shell: ShellTargetRunner) -> None:
    output = succeeded(await shell(shell_call("grep NoNewPrivs /proc/self/status")))["output"]
    assert output.split() == ["NoNewPrivs:", "1"]


@linux_only
async def test_a_command_cannot_fill_memory_through_its_input(shell: ShellTargetRunner) -> None:
    """It is a file in memory, which exists until the command ends."""
    outcome = failed(await shell(shell_call("head -c 1000000 /dev/zero >&0", {"a": 1})))
    assert "not permitted" in outcome.error


@root_only
async def test_a_command_of_another_user_has_none_of_roots_rights(as_nobody: ShellTargetRunner, tmp_path: Path) -> None:
    nobody = pwd.getpwnam(NOBODY)
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    command = (
        "id -u; id -g; id -G; grep NoNewPrivs /proc/self/status | cut -f2; echo $HOME $USER; touch mine && echo written"
        f"; echo opened >/dev/stdout; cat {secret} /proc/$PPID/environ /etc/shadow; kill -9 $PPID; true"
    )
    output = succeeded(await as_nobody(shell_call(command)))["output"]
    groups = " ".join(str(group) for group in os.getgrouplist(NOBODY, nobody.pw_gid))
    expected = [str(nobody.pw_uid), str(nobody.pw_gid), groups, "1", f"{nobody.pw_dir} {NOBODY}", "written", "opened"]
    assert output.splitlines()[:7] == expected
    assert SECRET not in output
    assert output.count("ermission denied") == 3, output
    assert "not permitted" in output


@root_only
async def test_the_folder_of_another_users_command_is_removed_by_that_user(
    as_nobody: ShellTargetRunner, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    command = f"pwd; mkdir -p a/b; touch a/b/c; ln -s {kept} a/link; chmod 500 a/b a"
    folder = Path(succeeded(await as_nobody(shell_call(command)))["output"].strip())
    assert not folder.exists()
    assert (kept / "file").read_text() == "x"


def test_a_user_that_is_missing_or_root_is_refused() -> None:
    with pytest.raises(UsageError, match="names no-such-user, which is not a user of this machine"):
        find_shell_user("no-such-user")
    with pytest.raises(UsageError, match="which is root"):
        find_shell_user("root")
    assert find_shell_user(None) is None


def test_only_root_can_run_commands_as_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match="needs root"):
        find_shell_user(NOBODY)


def test_commands_do_not_run_as_the_owner_of_the_embedded_database(tmp_path: Path) -> None:
    owner = pwd.getpwuid(tmp_path.stat().st_uid).pw_name
    with pytest.raises(UsageError, match="which owns the database"):
        refuse_owner(Settings(allow_shell=("default",), shell_user=owner), tmp_path)
    refuse_owner(Settings(allow_shell=("default",), shell_user="no-such-user"), tmp_path)


# --- what is left of a command ---


@linux_only
async def test_a_process_that_leaves_its_parent_session_and_environment_does_not_survive_a_timeout(
    shell: ShellTargetRunner, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    task = asyncio.create_task(shell(shell_call(sleeper(file, "time.sleep(1000)"))))
    pid = await number_in(file)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)


@linux_only
async def test_a_process_that_leaves_its_parent_session_and_environment_does_not_survive_the_end(
    shell: ShellTargetRunner, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    succeeded(await shell(shell_call(sleeper(file))))
    assert not is_alive(int(file.read_text()))


@linux_only
@pytest.mark.parametrize("number", ["SIGKILL", pytest.param("SIGSTOP", marks=pytest.mark.long)])
async def test_a_command_that_attacks_its_supervisor_leaves_nothing(
    shell: ShellTargetRunner, tmp_path: Path, number: str
) -> None:
    file = tmp_path / "pid"
    ending = (f"os.kill(os.getppid(), signal.{number})", "time.sleep(1000)")
    task = asyncio.create_task(shell(shell_call(sleeper(file, *ending))))
    pid = await number_in(file)
    if number == "SIGKILL":
        assert failed(await task).error == "The command was killed together with its supervisor."
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await until(lambda: not is_alive(pid), PATIENCE, "what the supervisor leaves behind to be killed")
    succeeded(await shell(shell_call("true")))


@linux_only
async def test_commands_run_again_after_the_process_that_starts_them_was_killed(shell: ShellTargetRunner) -> None:
    before = children_of_ours()
    succeeded(await shell(shell_call("true")))
    for pid in children_of_ours() - before:
        os.kill(pid, signal.SIGKILL)
        await until(lambda pid=pid: not is_alive(pid), PATIENCE, "its end")
    assert succeeded(await shell(shell_call("echo again")))["output"] == "again\n"
