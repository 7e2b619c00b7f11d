"""--watch: a list that is refreshed every few seconds, until Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from detent.cli import output, times
from detent.cli.base import F, on_terminal, option
from detent.cli.invocation import invocation
from detent.cli.output import Column, Item
from detent.cli.text import flat
from detent.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from rich.console import Group as Lines

WATCH_SECONDS = 2.0
HEADER_LINES = 2


def watch_option(function: F) -> F:
    return option("--watch", "-w", is_flag=True, help="Refresh the list every 2 s until Ctrl-C.")(function)


class PageSource(Protocol):
    """Fetches one page; a listing verb's `page` is one."""

    def __call__(self, limit: int) -> Item: ...


def watch(fetch: PageSource, limit: int, columns: Sequence[Column], empty: str) -> None:
    if not on_terminal() or invocation().format != "text":
        raise UsageError("--watch needs a terminal and no --json or --quiet: leave it out.")
    from rich.live import Live

    terminal = output.console()
    limit = min(limit, max(1, terminal.height - HEADER_LINES))
    page = fetch(limit)
    pause = threading.Event()
    with Live(console=terminal, auto_refresh=False, screen=True) as live:
        trouble = ""
        while True:
            live.update(_screen(page, columns, terminal.width, trouble, empty), refresh=True)
            pause.wait(WATCH_SECONDS)
            try:
                page, trouble = fetch(limit), ""
            except Unavailable as error:  # the server may be back at the next refresh
                trouble = error.message


def _screen(page: Item, columns: Sequence[Column], width: int, trouble: str, empty: str) -> Lines:
    from rich.console import Group as Lines
    from rich.text import Text

    at = times.now()
    line = Text(flat(trouble), style="red") if trouble else Text(f"{at:%H:%M:%S} UTC, Ctrl-C ends", style="dim")
    items: list[Any] = page["items"]
    return Lines(line, output.table(items, columns, at, width) if items else Text(empty))
