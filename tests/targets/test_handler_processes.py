"""Handlers in separate processes: what a handler does to its process affects only its own attempt."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detent.domain.job import PythonTarget
from detent.domain.run import Call, Claim, Failed, NotBegun, Succeeded
from detent.targets.frames import Effects, Holding, Setup
from detent.targets.processes import HandlerProcesses
from tests.support.waiting import until

APP = """
import asyncio, ctypes, os, re, signal, subprocess, sys, threading
from contextvars import ContextVar
from pathlib import Path
from detent import Detent, Run

app = Detent()
HERE = Path(__file__).parent


def function(handler):
    app.function(handler.__name__)(handler)
    return handler


@function
def echo(run: Run):
    return {"payload": run.payload, "pid": os.getpid(), "window": str(run.window_start), "attempt": run.attempt}

@function
async def echo_async(run: Run):
    return {"payload": run.payload, "pid": os.getpid()}

@function
def leave():
    os._exit(7)

@function
def crash():
    ctypes.string_at(0)

@function
def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)

@function
def waits_for_a_file(run: Run):
    (HERE / "waits").write_text(str(os.getpid()))
    while not (HERE / run.payload).exists():
        threading.Event().wait(0.01)
    return os.getpid()

@function
def holds_the_lock():
    (HERE / "holds").write_text(str(os.getpid()))
    re.match(r"(a+)+$", "a" * 60 + "b")

@function
async def blocks_its_loop():
    (HERE / "blocks").write_text(str(os.getpid()))
    threading.Event().wait(60)

@function
async def sleeps():
    (HERE / "sleeps").write_text(str(os.getpid()))
    try:
        await asyncio.sleep(60)
    finally:
        (HERE / "ended").write_text("politely")

@function
def asks(run: Run):
    run.heartbeat()
    return "held"

@function
def asks_until_told_to_stop(run: Run):
    (HERE / "asks").write_text(str(os.getpid()))
    while True:
        run.heartbeat()
        threading.Event().wait(0.01)

@function
def leaves_a_fork_behind():
    if os.fork() == 0:
        threading.Event().wait(60)
    os._exit(3)

@function
def starts_a_command():
    command = subprocess.Popen(["sleep", "60"])
    (HERE / "command").write_text(str(command.pid))
    os._exit(4)

USER = ContextVar("user", default="nobody")

@function
def logs_in(run: Run):
    before = USER.get()
    USER.set(run.payload)
    return before

@function
async def logs_in_on_the_loop(run: Run):
    before = USER.get()
    USER.set(run.payload)
    return before

class Mute:
    def __str__(self):
        raise ValueError("no text")

@function
def mute():
    return Mute()

@function
def stops_iteration():
    raise StopIteration("plain")

@function
def exits():
    sys.exit(2)

@function
def returns_a_coroutine():
    return echo_async_of(5)

async def echo_async_of(value):
    await asyncio.sleep(0)
    return value
"""

INSTANT = datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
RUN = "00000000-0000-8000-8000-000000000000"

Make = Callable[..., HandlerProcesses]


@pytest.fixture
async def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    """Pools of processes that import an app in the working directory."""
    (tmp_path / "isolated_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    pools: list[HandlerProcesses] = []

    def start(limit: int = 2, *, app: str = "isolated_app:app", hold: Any = lambda call: None, **how: Any) -> Any:
        setup = Setup(app, Effects("postgresql://nowhere", "detent", 5.0, False), 16_384, "auto", "info")
        pools.append(HandlerProcesses(limit, setup, hold, **how))
        return pools[-1]

    yield start
    for pool in pools:
        await pool.close()


def call_of(function: str, payload: Any = None, timeout_seconds: float = 60) -> Call:
    target = PythonTarget(function, isolate="process")
    return Call(
        RUN, "job", RUN, INSTANT, 1, "key", 1, payload, target, timeout_seconds, window=lambda: INSTANT
    )  # fmt: skip


def read(outcome: Any) -> Any:
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.result is not None
    return msgspec.json.decode(outcome.result)


async def process_in(file: Path) -> int:
    """The number that a handler has written there."""
    return int(await until(lambda: file.exists() and file.read_text(), what=file.name))


def is_gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


@pytest.mark.parametrize("function", ["echo", "echo_async"])
async def test_a_handler_has_its_payload_and_its_result_comes_back(make: Make, function: str) -> None:
    pool, payload = make(), {"n": [1, 2.5, None, "ü\u2028", 10**17]}
    answer = read(await pool(call_of(function, payload)))
    assert answer["payload"] == payload
    assert answer["pid"] != os.getpid()
    assert answer.get("window", str(INSTANT)) == str(INSTANT)
    assert read(await pool(call_of(function, payload)))["pid"] == answer["pid"]


async def test_what_a_handler_sets_in_its_context_is_not_seen_by_the_next_run(make: Make) -> None:
    pool = make(1)
    for user in ("ada", "bob", "eve"):
        for function in ("logs_in", "logs_in_on_the_loop"):
            assert read(await pool(call_of(function, user))) == "nobody"


@pytest.mark.parametrize(
    ("function", "how"),
    [("leave", "exit code 7"), ("kill_itself", "killed by SIGKILL"), ("crash", "killed by SIGSEGV")],
)
async def test_a_process_that_dies_is_one_failed_attempt_and_is_replaced(make: Make, function: str, how: str) -> None:
    pool = make(1)
    assert await pool(call_of(function)) == Failed(f"The handler's process died ({how}).")
    assert read(await pool(call_of("echo", 1)))["payload"] == 1


async def test_the_neighbours_of_a_process_that_dies_go_on(make: Make, tmp_path: Path) -> None:
    pool = make(2)
    neighbour = asyncio.create_task(pool(call_of("waits_for_a_file", "go")))
    process = await process_in(tmp_path / "waits")
    assert isinstance(await pool(call_of("leave")), Failed)
    (tmp_path / "go").touch()
    assert read(await neighbour) == process


@pytest.mark.parametrize(("function", "file"), [("holds_the_lock", "holds"), ("blocks_its_loop", "blocks")])
async def test_a_handler_that_cannot_be_interrupted_is_ended_by_its_timeout(
    make: Make, tmp_path: Path, function: str, file: str
) -> None:
    pool = make(2)
    hung = asyncio.create_task(pool(call_of(function, timeout_seconds=1)))
    process = await process_in(tmp_path / file)
    assert read(await pool(call_of("echo", "meanwhile")))["payload"] == "meanwhile"
    assert await hung == Failed("No answer within 1 s.", outcome="timeout")
    await until(lambda: is_gone(process))


async def test_a_coroutine_is_interrupted_before_its_process_is_killed(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    running = asyncio.create_task(pool(call_of("sleeps")))
    process = await process_in(tmp_path / "sleeps")
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert (tmp_path / "ended").read_text() == "politely"
    assert read(await pool(call_of("echo")))["pid"] == process


async def test_a_plain_function_that_asks_whether_to_go_on_stops_by_itself(make: Make, tmp_path: Path) -> None:
    held = Holding(3, Claim(1, 0, INSTANT, 0, 1, 1), INSTANT.timestamp())
    pool = make(1, hold=lambda call: held)
    running = asyncio.create_task(pool(call_of("asks_until_told_to_stop")))
    process = await process_in(tmp_path / "asks")
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert read(await pool(call_of("echo")))["pid"] == process


async def test_a_handler_can_ask_whether_its_run_is_still_held(make: Make) -> None:
    held: list[Holding | None] = [Holding(3, Claim(1, 0, INSTANT, 0, 2**60, 1), INSTANT.timestamp())]
    pool = make(1, hold=lambda call: held[0])
    assert read(await pool(call_of("asks"))) == "held"
    held[0] = None
    outcome = await pool(call_of("asks"))
    assert isinstance(outcome, Failed) and outcome.error.startswith("OwnershipLost: This run was cancelled")


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (
            "mute",
            "NotJson: The function returned an object of type Mute, which has no JSON form: return a dict, list, "
            "string, number, dataclass, msgspec Struct, pydantic model, or None.",
        ),
        (
            "starts_comand",
            "The app in this process has no function 'starts_comand' (did you mean 'starts_a_command'?): correct the "
            "job, or give the worker an app that has it.",
        ),
        ("stops_iteration", "StopIteration: plain"),
        ("exits", "SystemExit: 2"),
    ],
)
async def test_what_a_handler_raises_is_described_in_its_process(make: Make, function: str, error: str) -> None:
    pool = make(1)
    outcome = await pool(call_of(function))
    assert isinstance(outcome, Failed) and outcome.error == error
    assert read(await pool(call_of("returns_a_coroutine"))) == 5


async def test_what_a_dead_process_left_behind_ends_with_it(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    assert await pool(call_of("leaves_a_fork_behind")) == Failed("The handler's process died (exit code 3).")
    assert await pool(call_of("starts_a_command")) == Failed("The handler's process died (exit code 4).")
    command = await process_in(tmp_path / "command")
    await until(lambda: is_gone(command))


async def test_a_call_that_finds_no_process_did_not_begin_and_the_next_one_does(make: Make, tmp_path: Path) -> None:
    pool = make(1, begin_within=0.05)
    busy = asyncio.create_task(pool(call_of("waits_for_a_file", "go")))
    await process_in(tmp_path / "waits")
    why = "All 1 processes for handlers are busy."
    assert await pool(call_of("echo")) == NotBegun(why)
    assert [lane.why for lane in pool.lanes if lane.short] == [why]
    assert await pool(call_of("echo")) == NotBegun(why)
    (tmp_path / "go").touch()
    read(await busy)
    await until(lambda: not any(lane.short for lane in pool.lanes))
    read(await pool(call_of("echo")))


@pytest.mark.parametrize("text", ["import no_such_module", "raise SystemExit(9)", "app = 5"])
async def test_an_app_that_its_process_cannot_import_begins_nothing_and_is_tried_again(
    make: Make, tmp_path: Path, text: str
) -> None:
    module = tmp_path / "mended.py"
    module.write_text(text)
    pool = make(1, app="mended:app")
    assert isinstance(await pool(call_of("echo")), NotBegun)
    assert any(lane.short for lane in pool.lanes)
    module.write_text(APP)
    await until(lambda: not any(lane.short for lane in pool.lanes))
    read(await pool(call_of("echo")))


async def test_a_process_that_died_while_it_was_idle_is_replaced_before_the_call(make: Make) -> None:
    pool = make(1)
    process = read(await pool(call_of("echo")))["pid"]
    os.kill(process, 9)
    await until(lambda: is_gone(process))
    assert read(await pool(call_of("echo")))["pid"] != process


async def test_processes_end_when_they_are_not_needed_or_have_had_many_calls(make: Make) -> None:
    idle = make(1, idle_seconds=0.05)
    process = read(await idle(call_of("echo")))["pid"]
    await until(lambda: is_gone(process))
    often = make(1, max_runs=2)
    processes = [read(await often(call_of("echo")))["pid"] for _ in range(3)]
    assert processes[0] == processes[1] != processes[2]
    await until(lambda: is_gone(processes[0]))


async def test_processes_end_with_the_node_that_started_them(tmp_path: Path, make: Make) -> None:
    """Killed: it cannot end them itself, and the handler never lets another thread of its process run."""
    (tmp_path / "node.py").write_text(
        "import asyncio, sys\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "from tests.targets.test_handler_processes import call_of\n"
        "from detent.targets.frames import Effects, Setup\n"
        "from detent.targets.processes import HandlerProcesses\n"
        "setup = Setup('isolated_app:app', Effects('postgresql://x', 'detent', 5.0, False), 100, 'auto', 'info')\n"
        "async def main():\n"
        "    await HandlerProcesses(1, setup, lambda call: None)(call_of('holds_the_lock'))\n"
        "asyncio.run(main())\n"
    )
    node = await asyncio.create_subprocess_exec(sys.executable, "node.py")
    process = await process_in(tmp_path / "holds")
    node.kill()
    await node.wait()
    await until(lambda: is_gone(process))
