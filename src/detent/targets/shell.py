"""The shell target: a command with its own folder, session and environment, in a tree of processes that ends with it.

The worker's own environment is not passed on, because it holds the database's password.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from detent.domain.documents import encode_json
from detent.domain.job import ShellTarget
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.domain.target_rules import check_target
from detent.domain.target_url import TargetError
from detent.targets.capture import Hide
from detent.targets.child import Child, RefusedError
from detent.targets.command_server import NO_FOLDER, NO_USER
from detent.targets.commands import Command, CommandServer
from detent.targets.output import AttemptOutput
from detent.targets.shell_user import ShellUser
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
        errno.ETOOMANYREFS,
        errno.EIO,
    }
)
# Done by the command's own user, who may have swapped a folder for a link by now: root would follow it anywhere.
_REMOVE = 'rm -rf "$0" 2>/dev/null || { find "$0" -type d -exec chmod u+rwx {} \\; ; rm -rf "$0"; }'


class ShellTargetRunner:
    """Runs shell targets; one for a whole worker."""

    def __init__(
        self,
        tenants: Mapping[int, str],
        *,
        user: ShellUser | None = None,
        max_result_bytes: int = 65_536,
        grace_seconds: float = 2.0,
        linger_seconds: float = 0.25,
        output: Callable[[Call], AttemptOutput | None] = lambda call: None,
    ) -> None:
        """`tenants`: whose commands are run, by number, with their names. `user`: as whom; None: as this process.
        `output`: where the lines of an attempt go."""
        self._tenants = tenants
        self._user = user
        self._limit = max_result_bytes
        self._grace = grace_seconds
        self._linger = linger_seconds
        self._output = output
        self._server = CommandServer()
        self._environment = {
            "PATH": os.environ.get("PATH", _DEFAULT_PATH),
            "HOME": os.environ.get("HOME", "/"),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
        }
        if user is not None:
            self._environment |= {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}

    async def start(self) -> None:
        """Start the process that starts commands before the first of them needs it."""
        self._server.start()

    async def close(self) -> None:
        """Called when no run is left."""
        await self._server.close()

    async def __call__(self, call: Call) -> Outcome:
        target = call.target
        if not isinstance(target, ShellTarget):
            raise TypeError("The shell runner runs only shell targets.")
        if call.tenant not in self._tenants:
            return Failed(_not_allowed(self._tenants), retryable=False)
        try:
            check_target(target)
            _filled(target)
        except TargetError as error:
            return Failed(error.message, retryable=False)
        try:
            folder = self._make_folder()
        except OSError as error:
            return Failed(f"No working folder could be created for the command: {_reason(error)}.")
        try:
            return await self._run(call, target, folder)
        finally:
            await self._remove(folder)

    async def _run(self, call: Call, target: ShellTarget, folder: Path) -> Outcome:
        trace = {"TRACEPARENT": call.traceparent or traceparent_of(call.run_id)}
        environment = {**self._environment, **trace, **_filled(target), **_facts(call)}
        payload = b"" if call.payload is None else msgspec.json.encode(call.payload)
        lines = self._output(call)
        try:
            child = await self._finished(_words(target), environment, folder, payload, lines)
        except RefusedError as refusal:
            return self._refused(target, folder, refusal)
        except OSError as error:
            return _not_started(target, error)
        finally:
            if lines is not None:
                lines.end()
        return _outcome(target, child, str if call.mask is None else call.mask.cut_text)

    def _refused(self, target: ShellTarget, folder: Path, refusal: RefusedError) -> Failed:
        name, why = "this user" if self._user is None else self._user.name, _reason(refusal.error)
        if refusal.step == NO_USER:
            return Failed(f"The command could not be run as {name}: {why}.")
        if refusal.step == NO_FOLDER:
            return Failed(f"The command's folder {folder} could not be entered by {name}: {why}.")
        return _not_started(target, refusal.error)

    async def _finished(
        self,
        words: list[bytes],
        environment: dict[str, str],
        folder: Path,
        payload: bytes = b"",
        output: AttemptOutput | None = None,
    ) -> Child:
        """A command that has ended, with everything it started. Raises RefusedError or OSError if it was not executed.
        A cancellation ends it."""
        command = Command(words, _encoded(environment), folder, self._user)
        child = Child(self._server, command, payload, self._limit, output)
        try:
            await child.started()
            await child.wait(self._linger)
        except asyncio.CancelledError:
            await _to_the_end(child.stop(self._grace))
            raise
        finally:
            await _to_the_end(child.end())
        return child

    def _make_folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="detent-"))
        if self._user is not None:
            os.chown(folder, self._user.uid, self._user.gid)
        return folder

    async def _remove(self, folder: Path) -> None:
        """What cannot be removed stays: it must not fail a run that succeeded."""
        if not _remove_empty(folder):
            words = [b"/bin/sh", b"-c", _REMOVE.encode(), os.fsencode(folder)]
            with suppress(RefusedError, OSError):
                await self._finished(words, {"PATH": _DEFAULT_PATH}, Path("/"))
            _remove_empty(folder)  # which that user can only if it may change the folder above


def _not_allowed(tenants: Mapping[int, str]) -> str:
    names = ", ".join(tenants.values())
    return (
        f"This worker runs shell commands for the {'tenant' if len(tenants) == 1 else 'tenants'} {names} only: "
        "start a worker that names the tenant of this job in --allow-shell."
    )


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


def _filled(target: ShellTarget) -> dict[str, str]:
    env = {name: value for name, value in target.env.items() if isinstance(value, str)}
    if len(env) < len(target.env):
        raise TargetError(
            "/target/env", "A variable refers to a secret, and only a worker of a cluster can fill it in."
        )
    return env


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


def _outcome(target: ShellTarget, child: Child, hide: Hide) -> Outcome:
    code, capture = child.code, child.capture
    answer: dict[str, object] = {"exit_code": code, "output": capture.text(hide)}
    if capture.omitted:
        answer |= {"truncated": True, "omitted_bytes": capture.omitted}
    result = encode_json(answer)
    if code == 0:
        return Succeeded(result)
    last_line = capture.last_line(hide)
    ending = f": {last_line}" if last_line else "."
    if code is None:
        return Failed(f"The command was killed together with its supervisor{ending}", result=result)
    if code < 0:
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


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _remove_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
