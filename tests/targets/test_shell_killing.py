"""Timeout and cancellation end a command with everything it started, whatever it does against it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from detent.targets.shell import ShellTargetRunner
from tests.targets.target_helpers import RUN_ID, children_of_ours, eventually, is_alive, open_files, shell_call

# Leaves its parent, its process group and its session, closes everything, and ignores what can be ignored.
ESCAPE = """
import os, signal, sys, time
if os.fork():
    os.wait()
    {parent}
os.setsid()
if os.fork():
    os._exit(0)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
os.closerange(0, 3)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def no_child_of_ours_is_left() -> Iterator[None]:
    before = children_of_ours()
    yield
    assert children_of_ours() <= before


async def cancel_when_there(
    shell: ShellTargetRunner, command: str | list[str], files: list[Path], *, cancels: int = 1, run_id: str = ""
) -> list[int]:
    """Run, wait until the command has written its process numbers, cancel; the numbers."""
    call = shell_call(command, run_id=run_id or str(uuid4()), token=1)
    task = asyncio.create_task(shell(call))
    await eventually(lambda: all(file.exists() for file in files), "the command is under way")
    pids = [int(word) for file in files for word in file.read_text().split()]
    assert all(is_alive(pid) for pid in pids)
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    return pids


def writes(file: Path, *pids: str) -> str:
    return f"echo {' '.join(pids)} >{file}.new; mv {file}.new {file}; "


async def test_a_sleeping_command_ends_at_once(shell: ShellTargetRunner, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    patient = ShellTargetRunner({1: "default"}, grace_seconds=1000)
    pids = await cancel_when_there(patient, "sleep 1000 & " + writes(file, "$$", "$!") + "wait", [file])
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)
    await patient.close()


async def test_a_command_may_clean_up_within_the_grace(shell: ShellTargetRunner, tmp_path: Path) -> None:
    file, proof = tmp_path / "pids", tmp_path / "proof"
    patient = ShellTargetRunner({1: "default"}, grace_seconds=1000)
    command = f"trap 'echo cleaned >{proof}; exit 0' TERM; {writes(file, '$$')} while :; do sleep 0.01; done"
    await cancel_when_there(patient, command, [file])
    assert proof.read_text() == "cleaned\n"
    await patient.close()


async def test_a_command_that_ignores_the_signal_is_killed(shell: ShellTargetRunner, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    command = f"trap '' TERM INT HUP; sleep 1000 & {writes(file, '$$', '$!')} while :; do wait; done"
    pids = await cancel_when_there(shell, command, [file])
    assert not any(is_alive(pid) for pid in pids)


async def test_a_stopped_command_is_killed(shell: ShellTargetRunner, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    pids = await cancel_when_there(shell, f"{writes(file, '$$')} kill -STOP $$", [file])
    assert not any(is_alive(pid) for pid in pids)


async def test_a_cancellation_of_the_cancellation_changes_nothing(shell: ShellTargetRunner, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    pids = await cancel_when_there(shell, f"trap '' TERM; {writes(file, '$$')} while :; do :; done", [file], cancels=5)
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.parametrize("parent", ["time.sleep(1000)", "os.execvp('sleep', ['sleep', '1000'])"])
async def test_a_process_that_forks_twice_and_escapes_is_caught(
    shell: ShellTargetRunner, tmp_path: Path, parent: str
) -> None:
    file = tmp_path / "pid"
    (pid,) = await cancel_when_there(
        shell, [sys.executable, "-S", "-c", ESCAPE.format(parent=parent), str(file)], [file]
    )
    assert not is_alive(pid)


async def test_a_process_with_a_session_of_its_own_and_no_environment_is_caught(
    shell: ShellTargetRunner, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    command = f"setsid env -i sh -c 'trap \"\" TERM; {writes(file, '$$')} while :; do sleep 1; done' & wait"
    (pid,) = await cancel_when_there(shell, command, [file])
    assert not is_alive(pid)


async def test_a_run_is_not_confused_with_its_neighbour(shell: ShellTargetRunner, tmp_path: Path) -> None:
    """Two attempts of one run, of which the first was given up, differ by their token only."""
    file, other_file = tmp_path / "pid", tmp_path / "other"
    other = asyncio.create_task(
        shell(shell_call(f"{writes(other_file, '$$')} exec sleep 1000", run_id=RUN_ID, token=2))
    )
    await eventually(other_file.exists, "the neighbour is under way")
    await cancel_when_there(shell, f"{writes(file, '$$')} exec sleep 1000", [file], run_id=RUN_ID)
    assert is_alive(int(other_file.read_text()))
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other


async def test_the_folder_is_removed_when_a_command_is_cancelled(shell: ShellTargetRunner, tmp_path: Path) -> None:
    file, where = tmp_path / "pid", tmp_path / "where"
    command = f"echo x >kept; pwd >{where}; {writes(file, '$$')} exec sleep 1000"
    await cancel_when_there(shell, command, [file])
    assert not Path(where.read_text().strip()).exists()


async def test_a_command_that_writes_without_end_can_be_cancelled(shell: ShellTargetRunner, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    before = open_files()
    (pid,) = await cancel_when_there(shell, f"{writes(file, '$$')} exec yes", [file])
    assert not is_alive(pid)
    assert open_files() == before
