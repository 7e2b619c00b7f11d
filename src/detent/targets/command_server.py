"""The process that starts commands and watches over them: `python -I -S command_server.py FD`, one for each worker.

    node ── request ──> server ── fork ──> supervisor ── fork, exec ──> command ──> whatever it starts
      └───────────── control socket ────────────┘

A command is not a child of the node, for three reasons:

- The server is started without the node's environment and has none of its secrets, so a command that reads the
  memory or the environment of its parent finds nothing.
- It has one thread, so it may execute Python between fork and exec: drop privileges, enter the folder. In the node,
  another thread may hold any lock at that moment.
- Linux makes each supervisor the parent of every process that the command leaves behind (PR_SET_CHILD_SUBREAPER), also
  of one that has forked twice, opened its own session and emptied its environment. A supervisor without children has
  therefore ended everything. If a supervisor is killed, the server becomes that parent and kills what it gets.

The file imports nothing of detent: a small process is forked in a millisecond, where a new interpreter takes twenty.

A request is one byte with four descriptors: a file that describes the command (`marshal`), the command's input, its
output, and the supervisor's end of the control socket. The node sends `TERMINATE` or `KILL` on that socket; when its
end is closed, the node is gone, which means `KILL`. The supervisor sends messages of a kind and a number, and closes
its end when no process is left.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import marshal
import os
import select
import signal
import socket
import struct
import sys
import time
import warnings  # noqa: F401 (loaded once here: `os.execvpe` imports it, which took each command 2.5 ms)
from collections.abc import Collection, Iterator
from contextlib import suppress

MESSAGE = struct.Struct("!Bi")
STARTED, EXITED, NO_USER, NO_FOLDER, NO_COMMAND = range(1, 6)
TERMINATE, KILL = b"T", b"K"
DESCRIPTORS = 4
KILL_SECONDS = 5.0

_KILL_PAUSE = 0.02
_LIBC = ctypes.CDLL(None)
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 36, 38
_SEES_PROCESSES = os.path.exists("/proc/self/stat")  # noqa: PTH110 (pathlib would double the server's start)

Process = tuple[int, int]
"""A process and when it started: the number by itself may be given to another process later."""


def main() -> None:
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # The node decides when commands end. A function, not SIG_IGN, which commands would inherit.
        signal.signal(number, lambda *_: None)
    gc.disable()
    gc.freeze()
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    serve(socket.socket(fileno=descriptor))


def _prctl(option: int, value: int) -> None:
    """Other systems have none, and nothing is promised there."""
    with suppress(AttributeError):
        _LIBC.prctl(option, value, 0, 0, 0)


# --- the server ---


def serve(requests: socket.socket) -> None:
    """Serve until the node has closed its end and no supervisor is left."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    child_exits = ChildExitPipe()
    supervisors: set[int] = set()
    accepting, orphans = True, False
    while accepting or supervisors:
        ready = _wait([child_exits.readable, *([requests.fileno()] if accepting else [])])
        if requests.fileno() in ready:
            accepting = _accept(requests, supervisors)
        child_exits.clear()
        for pid, status in _reap()[0].items():
            if pid in supervisors:
                supervisors.discard(pid)
                orphans = orphans or status != 0
        if orphans:
            orphans = signal_descendants(signal.SIGKILL, spare=supervisors) > 0


def _accept(requests: socket.socket, supervisors: set[int]) -> bool:
    """Take one request. False: there will be none."""
    try:
        message, descriptors, _, _ = socket.recv_fds(requests, 1, DESCRIPTORS)
    except ConnectionError:
        return False
    if len(descriptors) == DESCRIPTORS:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        try:
            pid = os.fork()
        except OSError as error:
            _send(descriptors[-1], NO_COMMAND, error.errno or errno.EAGAIN)
        else:
            if not pid:
                requests.close()
                os._exit(_supervise_safely(*descriptors))
            supervisors.add(pid)
    for descriptor in descriptors:
        os.close(descriptor)
    return bool(message)


def _supervise_safely(description: int, source: int, output: int, control: int) -> int:
    """The exit code: other than 0, processes may be left, and the server kills them."""
    try:
        return 0 if Supervisor(control).run(description, source, output) else 1
    except BaseException as error:
        sys.stderr.write(f"A supervisor of a command failed: {error!r}\n")
        sys.stderr.flush()
        return 2


# --- a supervisor ---


class Supervisor:
    def __init__(self, control: int) -> None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # not inherited
        self._control = socket.socket(fileno=control)
        self._child_exits = ChildExitPipe()

    def run(self, description: int, source: int, output: int) -> bool:
        """Start the command and watch over it; returns whether all of its processes have ended."""
        leader = self._start(description, source, output)
        if not leader:
            return True
        deadline: float | None = None
        while True:
            ended, alone = _reap()
            if leader in ended:
                self._report(EXITED, os.waitstatus_to_exitcode(ended[leader]))
            # On other systems than Linux, what a command leaves behind is not our child: the node says when to kill it.
            if alone and (_SEES_PROCESSES or deadline is not None):
                return True
            if deadline is not None and time.monotonic() > deadline:
                return False  # it hangs inside the kernel, or forks faster than it can be killed
            deadline = self._step(leader, deadline)
            self._child_exits.clear()

    def _step(self, leader: int, deadline: float | None) -> float | None:
        """Wait for the end of a child or an order, and carry it out; until when to kill, if that was the order."""
        if deadline is None:
            if self._control.fileno() not in _wait([self._child_exits.readable, self._control.fileno()]):
                return None
            if self._order() == TERMINATE:
                signal_descendants(signal.SIGTERM, leader=leader)
                return None
            deadline = time.monotonic() + KILL_SECONDS
        signal_descendants(signal.SIGKILL, leader=leader)
        _wait([self._child_exits.readable], _KILL_PAUSE)
        return deadline

    def _order(self) -> bytes:
        try:
            return self._control.recv(1)
        except ConnectionError:
            return b""

    def _report(self, kind: int, number: int) -> None:
        with suppress(OSError):  # the node is gone, which the control socket reports too
            self._control.sendall(MESSAGE.pack(kind, number))

    def _start(self, description: int, source: int, output: int) -> int:
        """The process of the command; 0: it could not be started, and the node knows why."""
        with os.fdopen(description, "rb") as file:
            words, environment, folder, identity = marshal.load(file)  # noqa: S302 (the node wrote it)
        readable, writable = os.pipe()
        leader = os.fork()
        if not leader:
            refused = _become(words, environment, folder, identity, source, output)
            os.write(writable, MESSAGE.pack(*refused))
            os._exit(1)
        for descriptor in (writable, source, output):
            os.close(descriptor)
        with os.fdopen(readable, "rb") as file:  # its other end is closed when the command is executed
            refusal = file.read(MESSAGE.size)
        if refusal:
            os.waitpid(leader, 0)
            self._report(*MESSAGE.unpack(refusal))
            return 0
        self._report(STARTED, os.getpid())
        return leader


def _become(
    words: list[bytes],
    environment: dict[bytes, bytes],
    folder: bytes,
    identity: tuple[int, int, list[int]] | None,
    source: int,
    output: int,
) -> tuple[int, int]:
    """Turn this process into the command. Returns only if that is not possible: at which step, and why."""
    step = NO_USER
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and commands would inherit that
            signal.signal(number, signal.SIG_DFL)
        for ours, theirs in ((source, 0), (output, 1), (output, 2)):
            os.dup2(ours, theirs)
        if identity is not None:
            uid, gid, groups = identity
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
        step = NO_FOLDER
        os.chdir(folder)
        step = NO_COMMAND
        os.execvpe(words[0], words, environment)  # noqa: S606 (running what the job says is what this is for)
    except OSError as error:
        return step, error.errno or errno.EINVAL
    except BaseException:
        return step, errno.EINVAL


# --- children and their children ---


class ChildExitPipe:
    """A pipe that becomes readable when a child ends."""

    def __init__(self) -> None:
        self.readable, writable = os.pipe()
        os.set_blocking(self.readable, False)
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.readable, 4096)


def _wait(descriptors: list[int], seconds: float | None = None) -> set[int]:
    """Wait for descriptors that are readable or closed at their other end, and return them."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(None if seconds is None else seconds * 1000)}


def _reap() -> tuple[dict[int, int], bool]:
    """The children that have ended, with their status, and whether there are no others."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, True
        if not pid:
            return ended, False
        ended[pid] = status


def _send(control: int, kind: int, number: int) -> None:
    with suppress(OSError):
        os.write(control, MESSAGE.pack(kind, number))


def signal_descendants(number: signal.Signals, *, spare: Collection[int] = (), leader: int = 0) -> int:
    """Signal every descendant but the children to spare and theirs; returns how many. Where processes cannot be listed,
    the group of `leader`."""
    if not _SEES_PROCESSES:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)
        return 0
    found = list(_descendants(spare))
    for process in found:
        _signal(process, number)
    return len(found)


def _descendants(spare: Collection[int]) -> Iterator[Process]:
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 (see above)
        if name.isdigit() and (found := _parent_and_start(int(name))) is not None:
            children.setdefault(found[0], []).append((int(name), found[1]))
    todo = [process for process in children.get(os.getpid(), []) if process[0] not in spare]
    while todo:
        process = todo.pop()
        yield process
        todo += children.get(process[0], [])


def _parent_and_start(pid: int) -> Process | None:
    """None: it has just ended, or belongs to a user whose processes are hidden."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 (see above)
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name in brackets may contain anything, brackets too
    return int(fields[1]), int(fields[19])


def _signal(process: Process, number: signal.Signals) -> None:
    """Signal it, unless its number now belongs to another process."""
    pid, started = process
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # a sandbox that forbids it
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
        return
    with suppress(ProcessLookupError, PermissionError):
        found = _parent_and_start(pid)
        if found is not None and found[1] == started:
            signal.pidfd_send_signal(descriptor, number)
    os.close(descriptor)


if __name__ == "__main__":
    main()
