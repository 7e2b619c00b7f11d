"""--watch: a list that is drawn again every few seconds, until Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from detent.cli import output, times
from detent.cli.base import F, on_terminal, option
from detent.cli.output import Column, Item
from detent.cli.session import session
from detent.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from rich.console import Group as Lines

WATCH_SECONDS = 2.0
HEADER_LINES = 2


def watch_option(function: F) -> F:
    return option("--watch", "-w", is_flag=True, help="Show the list again every 2 s until Ctrl-C.")(function)


def watch(fetch: Callable[..., Item], limit: int, columns: Sequence[Column], empty: str) -> None:
    """`fetch` takes `limit` and `cursor`, and gives a page."""
    if not on_terminal() or session().shape != "people":
        raise UsageError("--watch draws on a terminal: leave it out here.")
    from rich.live import Live

    terminal = output.console()
    limit = min(limit, max(1, terminal.height - HEADER_LINES))
    page: Item = fetch(limit=limit, cursor=None)
    pause = threading.Event()
    with Live(console=terminal, auto_refresh=False, screen=True) as live:
        trouble = ""
        while True:
            live.update(_screen(page, columns, terminal.width, trouble, empty), refresh=True)
            pause.wait(WATCH_SECONDS)
            try:
                page, trouble = fetch(limit=limit, cursor=None), ""
            except Unavailable as error:  # the server may well be back at the next look
                trouble = error.message


def _screen(page: Item, columns: Sequence[Column], width: int, trouble: str, empty: str) -> Lines:
    from rich.console import Group as Lines
    from rich.text import Text

    at = times.now()
    line = Text(trouble, style="red") if trouble else Text(f"{at:%H:%M:%S} UTC, Ctrl-C ends", style="dim")
    items: list[Any] = page["items"]
    return Lines(line, output.table(items, columns, at, width) if items else Text(empty))
