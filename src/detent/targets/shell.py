"""The shell target: a command with its own folder, session and environment.

The worker's own environment is not passed on, because it holds the database's password.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import stat
import tempfile
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from detent.domain.documents import encode_json
from detent.domain.job import ShellTarget
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.domain.target_rules import check_target
from detent.domain.target_url import TargetError
from detent.targets.capture import Capture
from detent.targets.child import Child
from detent.targets.text import instant_text, one_line
from detent.telemetry.tracing import traceparent_of

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_PASSING = frozenset(
    {
        errno.EAGAIN,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ETXTBSY,
        errno.EIO,
    }
)


class ShellTargetRunner:
    """Runs shell targets; one for a whole worker."""

    def __init__(
        self, *, max_result_bytes: int = 65_536, grace_seconds: float = 2.0, linger_seconds: float = 0.25
    ) -> None:
        self._limit = max_result_bytes
        self._grace = grace_seconds
        self._linger = linger_seconds
        # Scanning all processes and removing large folders would block the event loop.
        self._executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="detent-shell")
        self._environment = {
            "PATH": os.environ.get("PATH", _DEFAULT_PATH),
            "HOME": os.environ.get("HOME", "/"),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
        }

    async def close(self) -> None:
        """Called when no run is left."""
        self._executor.shutdown(wait=False)

    async def __call__(self, call: Call) -> Outcome:
        target = call.target
        if not isinstance(target, ShellTarget):
            raise TypeError("The shell runner runs only shell targets.")
        try:
            check_target(target)
        except TargetError as error:
            return Failed(error.message, retryable=False)
        try:
            folder = Path(tempfile.mkdtemp(prefix="detent-"))
        except OSError as error:
            return Failed(f"No working folder could be created for the command: {_reason(error)}.")
        try:
            return await self._run(call, target, folder)
        finally:
            await self._remove(folder)

    async def _run(self, call: Call, target: ShellTarget, folder: Path) -> Outcome:
        facts = _facts(call)
        trace = {"TRACEPARENT": call.traceparent or traceparent_of(call.run_id)}
        environment = {**self._environment, **trace, **target.env, **facts}
        payload = b"" if call.payload is None else msgspec.json.encode(call.payload)
        try:
            child = Child.start(_words(target), _encoded(environment), folder, payload, self._limit)
        except OSError as error:
            return _not_started(target, error)
        try:
            await child.wait(self._linger)
        except asyncio.CancelledError:
            marks = tuple(f"{name}={facts[name]}".encode() for name in ("DETENT_RUN_ID", "DETENT_TOKEN"))
            await _to_the_end(child.stop(self._grace, marks, self._executor))
            raise
        finally:
            code = child.finish()
        return _outcome(target, code, child.capture)

    async def _remove(self, folder: Path) -> None:
        if not _remove_empty(folder):
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, _remove_tree, folder)


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish this work even if the task is cancelled again; the caller raises the cancellation afterwards."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            pass


def _words(target: ShellTarget) -> list[bytes]:
    words = ["/bin/sh", "-c", target.command] if isinstance(target.command, str) else target.command
    return [word.encode() for word in words]


def _encoded(environment: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in environment.items()}


def _facts(call: Call) -> dict[str, str]:
    window_start, window = call.window_start, {}
    if window_start is not None:
        window["DETENT_WINDOW_START"] = instant_text(window_start)
        window["DETENT_WINDOW_END"] = instant_text(call.scheduled_at)
    return {
        "DETENT_RUN_ID": call.run_id,
        "DETENT_JOB": call.job,
        "DETENT_JOB_ID": call.job_id,
        "DETENT_SCHEDULED_AT": instant_text(call.scheduled_at),
        "DETENT_ATTEMPT": str(call.attempt),
        "DETENT_TOKEN": str(call.token),
        "DETENT_IDEMPOTENCY_KEY": call.idempotency_key,
        **window,
    }


def _outcome(target: ShellTarget, code: int | None, capture: Capture) -> Outcome:
    answer: dict[str, object] = {"exit_code": code, "output": capture.text()}
    if capture.omitted:
        answer |= {"truncated": True, "omitted_bytes": capture.omitted}
    result = encode_json(answer)
    if code == 0:
        return Succeeded(result)
    last_line = capture.last_line()
    ending = f": {last_line}" if last_line else "."
    if code is None or code < 0:
        return Failed(f"The command was killed by {_signal_name(code)}{ending}", result=result)
    # By convention a shell exits with one of these two when it could not start the command.
    hopeless = isinstance(target.command, str) and code in (_NOT_EXECUTABLE, _NOT_FOUND)
    meaning = {_NOT_EXECUTABLE: " (not executable)", _NOT_FOUND: " (not found)"}[code] if hopeless else ""
    return Failed(f"The command exited with status {code}{meaning}{ending}", retryable=not hopeless, result=result)


def _not_started(target: ShellTarget, error: OSError) -> Failed:
    program = "/bin/sh" if isinstance(target.command, str) else target.command[0]
    name = one_line(repr(program), 200)
    match error:
        case FileNotFoundError():
            return Failed(f"The command {name} was not found on this worker.", retryable=False)
        case PermissionError():
            return Failed(f"The command {name} is not executable on this worker.", retryable=False)
    retryable = error.errno in _PASSING
    return Failed(f"The command {name} could not be started: {_reason(error)}.", retryable=retryable)


def _reason(error: OSError) -> str:
    text = error.strerror or type(error).__name__
    return text[0].lower() + text[1:]


def _signal_name(code: int | None) -> str:
    try:
        return signal.Signals(-(code or 0)).name
    except ValueError:
        return "a signal" if code is None else f"signal {-code}"


def _remove_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def _remove_tree(folder: Path) -> None:
    """Removes locked and deeply nested folders too, and never follows a link out of the folder.

    What cannot be removed stays: it must not fail a run that succeeded.
    """
    folders = [folder]
    for current in folders:  # grows while it is walked: parents before their children
        with suppress(OSError):
            current.chmod(stat.S_IRWXU)
            for entry in list(os.scandir(current)):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(current / entry.name)
                else:
                    (current / entry.name).unlink()
    for current in reversed(folders):
        with suppress(OSError):
            current.rmdir()
