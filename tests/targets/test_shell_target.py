"""What a command is given, and what its exit means for the run. Real processes."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvloop

from detent.domain.job import HttpTarget
from detent.targets.shell import ShellTargetRunner
from tests.targets.target_helpers import (
    RUN_ID,
    call_of,
    eventually,
    failed,
    is_alive,
    open_files,
    result_of,
    shell_call,
    succeeded,
)


async def test_a_command_is_reported_the_facts_of_the_run(
    shell: ShellTargetRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETENT_DATABASE_URL", "postgresql://user:hunter2@db/x")
    monkeypatch.setenv("SECRET", "hunter2")
    at = datetime(2026, 3, 1, 6, 30, 0, 5000, tzinfo=UTC)
    call = shell_call(
        ["env", "-0"],
        run_id=RUN_ID,
        env={"MINE": "a=b\nc", "LANG": "de_DE.UTF-8"},
        scheduled_at=at,
        job="Zürich x",
        window=lambda: datetime(2026, 2, 28, 6, 30, tzinfo=UTC),
    )
    output = succeeded(await shell(call))["output"]
    environment = dict(entry.split("=", 1) for entry in output.rstrip("\ufffd").split("\ufffd"))
    assert environment.pop("PATH")
    assert environment.pop("HOME")
    assert environment.pop("TRACEPARENT").startswith(f"00-{RUN_ID.replace('-', '')}-")
    assert environment == {
        "LANG": "de_DE.UTF-8",
        "MINE": "a=b\nc",
        "DETENT_RUN_ID": RUN_ID,
        "DETENT_JOB": "Zürich x",
        "DETENT_JOB_ID": "01987f2e-0000-7000-8000-000000000001",
        "DETENT_SCHEDULED_AT": "2026-03-01T06:30:00.005Z",
        "DETENT_WINDOW_START": "2026-02-28T06:30:00Z",
        "DETENT_WINDOW_END": "2026-03-01T06:30:00.005Z",
        "DETENT_ATTEMPT": "1",
        "DETENT_TOKEN": "8589934593",
        "DETENT_IDEMPOTENCY_KEY": "nightly-report:2026-03-01T06:30:00Z",
    }


async def test_the_payload_comes_on_standard_input(shell: ShellTargetRunner) -> None:
    payload = {"text": "$(touch x); `id` 'ü' \" \\", "n": [1, None]}
    assert json.loads(succeeded(await shell(shell_call("cat; ls", payload)))["output"]) == payload
    assert succeeded(await shell(shell_call("cat")))["output"] == ""


async def test_a_large_payload_that_no_node_reads_does_no_harm(shell: ShellTargetRunner) -> None:
    succeeded(await shell(shell_call("exec 0<&-; echo ok", "x" * 1_000_000)))


async def test_a_string_goes_through_the_shell_and_a_list_does_not(shell: ShellTargetRunner) -> None:
    assert succeeded(await shell(shell_call("echo a b | wc -w")))["output"].strip() == "2"
    words = ["printf", "%s|", "a b", "$HOME", "; exit 3", "*", ""]
    assert succeeded(await shell(shell_call(words)))["output"] == "a b|$HOME|; exit 3|*||"


async def test_a_command_has_a_folder_of_its_own_that_is_gone_afterwards(shell: ShellTargetRunner) -> None:
    command = "pwd; ls -A; mkdir -p a/b; echo x >a/b/c; ln -s / root; chmod 500 a/b a"
    folders = [Path(succeeded(await shell(shell_call(command)))["output"].strip()) for _ in range(2)]
    assert folders[0] != folders[1]
    assert not any(folder.exists() for folder in folders)
    assert Path("/etc").exists()


async def test_cleaning_up_does_not_follow_links_out_of_the_folder(shell: ShellTargetRunner, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    kept.chmod(0o555)
    succeeded(await shell(shell_call(f"mkdir d; ln -s {kept} d/link; ln -s {kept}/file d/file; chmod 500 d")))
    assert (kept / "file").read_text() == "x"
    assert kept.stat().st_mode & 0o777 == 0o555


async def test_a_deeply_nested_folder_is_removed(shell: ShellTargetRunner) -> None:
    deep = "/".join("d" * 1500)
    folder = Path(succeeded(await shell(shell_call(f"pwd; mkdir -p {deep}")))["output"].strip())
    assert not folder.exists()


async def test_a_command_inherits_no_open_files(shell: ShellTargetRunner, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        output = succeeded(await shell(shell_call("ls -l /proc/$$/fd")))["output"]
    assert "pipe:" in output
    assert "secret" not in output


async def test_output_and_errors_come_in_the_order_they_were_written(shell: ShellTargetRunner) -> None:
    stored = succeeded(await shell(shell_call("echo a; echo b >&2; echo c")))
    assert stored == {"exit_code": 0, "output": "a\nb\nc\n"}


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("exit 3", "The command exited with status 3."),
        ("echo working; echo 'disk full' >&2; echo; exit 1", "The command exited with status 1: disk full"),
        ("printf 'a\\033[31mb\\0c\\n'; exit 2", "The command exited with status 2: a [31mb\ufffdc"),
        ("kill -TERM $$", "The command was killed by SIGTERM."),
        ("echo last words; kill -SEGV $$", "The command was killed by SIGSEGV: last words"),
        (["sh", "-c", "exit 127"], "The command exited with status 127."),
    ],
)
async def test_a_command_that_fails_is_worth_a_retry(
    shell: ShellTargetRunner, command: str | list[str], error: str
) -> None:
    outcome = failed(await shell(shell_call(command)))
    assert outcome.error == error
    assert outcome.retryable


async def test_the_result_of_a_failure_has_code_and_output(shell: ShellTargetRunner) -> None:
    assert result_of(await shell(shell_call("echo why; exit 9"))) == {"exit_code": 9, "output": "why\n"}
    assert result_of(await shell(shell_call("kill -9 $$"))) == {"exit_code": -9, "output": ""}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["no-such-program"], "'no-such-program' was not found"),
        (["./missing"], "'./missing' was not found"),
        (["/etc/passwd"], "'/etc/passwd' is not executable"),
        (["/"], "'/' is not executable"),
        ("no-such-program --x", "status 127 (not found): "),
        ("/etc/passwd", "status 126 (not executable): "),
        (["echo", "x" * 200_000], "could not be started: argument list too long"),
        (["echo", "a\0b"], "NUL"),
        (" ", "empty"),
    ],
)
async def test_a_command_that_cannot_be_started_is_not_retried(
    shell: ShellTargetRunner, command: str | list[str], words: str
) -> None:
    outcome = failed(await shell(shell_call(command)))
    assert words in outcome.error
    assert not outcome.retryable


async def test_a_program_without_an_interpreter_line_is_not_retried(shell: ShellTargetRunner, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF garbage")
    program.chmod(0o755)
    outcome = failed(await shell(shell_call([str(program)])))
    assert "exec format error" in outcome.error
    assert not outcome.retryable


async def test_a_worker_without_room_for_folders_says_so(
    shell: ShellTargetRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    outcome = failed(await shell(shell_call("true")))
    assert outcome.error == "No working folder could be created for the command: no such file or directory."
    assert outcome.retryable


async def test_a_hundred_megabytes_of_output_keep_their_ends(shell: ShellTargetRunner) -> None:
    command = "echo first; head -c 100000000 /dev/zero | tr '\\0' 'x'; echo; echo last"
    stored = succeeded(await shell(shell_call(command)))
    assert stored["output"].startswith("first\nxxx")
    assert stored["output"].endswith("xxx\nlast\n")
    assert stored["truncated"] is True
    total = len("first\n") + 100_000_000 + len("\nlast\n")
    assert stored["omitted_bytes"] == total - 10_000
    assert f"\n[{total - 10_000} bytes left out]\n" in stored["output"]
    assert len(stored["output"]) < 10_100


async def test_output_that_just_fits_is_kept_whole(shell: ShellTargetRunner) -> None:
    stored = succeeded(await shell(shell_call("head -c 10000 /dev/zero | tr '\\0' 'x'")))
    assert stored == {"exit_code": 0, "output": "x" * 10_000}


async def test_output_that_is_not_text_can_be_stored(shell: ShellTargetRunner) -> None:
    stored = succeeded(await shell(shell_call("head -c 50000 /dev/urandom")))
    assert stored["omitted_bytes"] == 40_000
    assert len(stored["output"].encode()) <= 10_100
    assert succeeded(await shell(shell_call("printf 'a\\0b'")))["output"] == "a\ufffdb"


async def test_what_a_command_leaves_running_does_not_hold_up_its_run(shell: ShellTargetRunner) -> None:
    stored = succeeded(await shell(shell_call("sleep 1000 & echo $!")))
    await eventually(lambda: not is_alive(int(stored["output"])), "the background process ended")


async def test_what_a_command_leaves_running_may_say_a_last_word(shell: ShellTargetRunner) -> None:
    stored = succeeded(await shell(shell_call("(sleep 0.02; echo late) & echo early")))
    assert stored["output"] == "early\nlate\n"


async def test_many_commands_run_at_once_and_leave_nothing_open(shell: ShellTargetRunner) -> None:
    succeeded(await shell(shell_call("true")))
    before = open_files()
    commands: list[str | list[str]] = ["echo $DETENT_TOKEN", "exit 1", ["missing"], "kill -9 $$"] * 10
    calls = [shell_call(command, token=number) for number, command in enumerate(commands)]
    outcomes = await asyncio.gather(*(shell(call) for call in calls))
    outputs = [succeeded(outcome)["output"] for outcome in outcomes[::4]]
    assert outputs == [f"{number}\n" for number in range(0, 40, 4)]
    assert open_files() == before


async def test_only_shell_targets_are_run(shell: ShellTargetRunner) -> None:
    with pytest.raises(TypeError):
        await shell(call_of(HttpTarget(url="http://example.com")))


async def run_some() -> None:
    runner = ShellTargetRunner({1: "default"}, grace_seconds=0.1)
    assert succeeded(await runner(shell_call("cat; echo done", 1)))["output"] == "1done\n"
    assert failed(await runner(shell_call("exit 4"))).error == "The command exited with status 4."
    assert failed(await runner(shell_call("kill -9 $$"))).error == "The command was killed by SIGKILL."
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await runner(shell_call("trap '' TERM; while :; do sleep 1; done"))
    await runner.close()


def test_commands_run_on_the_faster_event_loop() -> None:
    uvloop.run(run_some())


async def test_commands_run_where_the_kernel_cannot_watch_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.delattr(os, "memfd_create")
    await run_some()
