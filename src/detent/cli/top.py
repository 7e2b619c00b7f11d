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
from detent.cli.invocation import api_options, connect, invocation
from detent.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from detent.client import JsonClient

SHORTEST_SECONDS = 0.2
WIDTH_IN_PIPE = 100
HEIGHT_IN_PIPE = 60


@command(
    None, "top", panel="Administration", examples=("detent top", "detent top --once", "detent top --interval 500ms")
)
@option("--once", is_flag=True, help="Print one frame; this is the default without a terminal.")
@option("--interval", metavar="TIME", default="2s", help="Time between refreshes. [2s]")
@api_options()
def top(once: bool, interval: str) -> None:
    """Watch the cluster: nodes, leadership, throughput and lag.

    Press q or Ctrl-C to quit, any other key to refresh. The map under
    the nodes has one letter per partition: that of the node that leads it.
    """
    seconds = times.read_duration("--interval", interval)
    if seconds < SHORTEST_SECONDS:
        raise UsageError(f"--interval is {interval!r}: give at least {SHORTEST_SECONDS:g} seconds.")
    with connect() as client:
        if invocation().format == "json":
            output.print_json(client.get_cluster())
        elif once or not base.on_terminal():
            _print_once(client)
        else:
            _watch(client, seconds)


def _print_once(client: JsonClient) -> None:
    from detent.cli.top_view import TopView

    on_terminal = base.on_terminal()
    terminal = output.console(None if on_terminal else WIDTH_IN_PIPE)
    cluster = client.get_cluster()
    view = TopView(client.url, "")
    view.sample(cluster)
    terminal.print(view.frame(cluster, times.now(), terminal.width, HEIGHT_IN_PIPE))


def _watch(client: JsonClient, seconds: float) -> None:
    from rich.live import Live

    from detent.cli.top_view import TopView

    terminal = output.console()
    view = TopView(client.url, f"   every {seconds:g} s, q quits")
    cluster, trouble = client.get_cluster(), ""
    with Live(console=terminal, auto_refresh=False, screen=True) as live, _keys() as wait:
        while True:
            if not trouble:
                view.sample(cluster)
            frame = view.frame(cluster, times.now(), terminal.width, terminal.height, trouble)
            live.update(frame, refresh=True)
            if wait(seconds) == "q":
                return
            try:
                cluster, trouble = client.get_cluster(), ""
            except Unavailable as error:  # the server may be back at the next refresh
                trouble = error.message


class _Keys:
    """Waits for a key or a timeout; without a keyboard, for the timeout only."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def __call__(self, seconds: float) -> str:
        readers = [] if self._descriptor is None else [self._descriptor]
        ready, _, _ = select.select(readers, [], [], seconds)
        if not ready:
            return ""
        pressed = os.read(ready[0], 1).decode(errors="replace")
        if not pressed:  # end of input: select would report it as ready again and again
            self._descriptor = None
        return pressed.lower()


@contextlib.contextmanager
def _keys() -> Iterator[_Keys]:
    """Read single key presses, and restore the terminal afterwards."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield _Keys(None)
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSADRAIN)  # keys typed ahead count
    try:
        yield _Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
