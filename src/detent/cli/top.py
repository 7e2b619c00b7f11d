"""`detent top`"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from detent.cli import base, output, times
from detent.cli.base import command, option
from detent.cli.session import asks_server, connect, session
from detent.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from detent.client.documents import Client

SHORTEST_SECONDS = 0.2
WIDTH_IN_PIPE = 100
HEIGHT_IN_PIPE = 60


@command(
    None, "top", panel="Look after it", examples=("detent top", "detent top --once", "detent top --interval 500ms")
)
@option("--once", is_flag=True, help="Print one frame, as where stdout is no terminal.")
@option("--interval", metavar="TIME", default="2s", help="How often to look. [2s]")
@asks_server()
def top(once: bool, interval: str) -> None:
    """Watch the cluster: its nodes, who leads what, how far behind it is.

    Press q or Ctrl-C to end, any other key to look at once. Below the nodes,
    each letter of the map is a partition, and whose letter it is leads it.
    """
    seconds = times.read_duration("--interval", interval)
    if seconds < SHORTEST_SECONDS:
        raise UsageError(f"--interval is {interval!r}: give at least {SHORTEST_SECONDS:g} seconds.")
    with connect() as client:
        if session().shape == "json":
            output.print_json(client.cluster())
        elif once or not base.on_terminal():
            _print_once(client)
        else:
            _watch(client, seconds)


def _print_once(client: Client) -> None:
    from detent.cli.top_frame import View

    on_terminal = base.on_terminal()
    terminal = output.console(None if on_terminal else WIDTH_IN_PIPE)
    cluster = client.cluster()
    view = View(client.url, "")
    view.sample(cluster)
    terminal.print(view.frame(cluster, times.now(), terminal.width, HEIGHT_IN_PIPE))


def _watch(client: Client, seconds: float) -> None:
    from rich.live import Live

    from detent.cli.top_frame import View

    terminal = output.console()
    view = View(client.url, f"   every {seconds:g} s, q ends")
    cluster, trouble = client.cluster(), ""
    with Live(console=terminal, auto_refresh=False, screen=True) as live, _keys() as wait:
        while True:
            if not trouble:
                view.sample(cluster)
            frame = view.frame(cluster, times.now(), terminal.width, terminal.height, trouble)
            live.update(frame, refresh=True)
            if wait(seconds) == "q":
                return
            try:
                cluster, trouble = client.cluster(), ""
            except Unavailable as error:  # the server may well be back at the next look
                trouble = error.message


class _Keys:
    """Waits for a key, or for the time to pass; without a keyboard, only for the time."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def __call__(self, seconds: float) -> str:
        readers = [] if self._descriptor is None else [self._descriptor]
        ready, _, _ = select.select(readers, [], [], seconds)
        if not ready:
            return ""
        pressed = os.read(ready[0], 1).decode(errors="replace")
        if not pressed:  # the end of the input, which would be ready for ever
            self._descriptor = None
        return pressed.lower()


@contextlib.contextmanager
def _keys() -> Iterator[_Keys]:
    """Keys one by one as they are pressed, and the terminal as it was afterwards."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield _Keys(None)
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSADRAIN)  # what was typed ahead counts
    try:
        yield _Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
