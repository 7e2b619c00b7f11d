"""Answers in the requested format: tables on a terminal, tab-separated lines in a pipe, JSON, or ids.

Data goes to stdout and messages to stderr. A table drops optional columns and shortens long ones until it fits the
terminal; a pipe gets every column in full.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from detent.cli import base, times
from detent.cli.invocation import invocation
from detent.cli.text import clean, flat, message
from detent.domain.text import visible_json
from detent.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console
    from rich.table import Table

Item = Mapping[str, Any]
GAP = 2  # between the columns of a table
ROOMY = 30  # a column that is not optional is not shortened below this before optional ones are dropped

STATUS_STYLES = {
    "active": "green",
    "paused": "yellow",
    "completed": "dim",
    "applied": "green",
    "alive": "green",
    "draining": "yellow",
    "evicted": "red",
    "lost": "red",
    "left": "dim",
    "pending": "dim",
    "running": "cyan",
    "retrying": "yellow",
    "succeeded": "green",
    "failed": "red",
    "timeout": "red",
    "dead": "bold red",
    "cancelled": "magenta",
    "skipped": "yellow",
    "missed": "yellow",
    "stale": "yellow",
}


class Column(NamedTuple):
    """`plain` is the text in a pipe; `shown`, if set, the text on a terminal."""

    title: str
    plain: Callable[[Item], object]
    shown: Callable[[Item, datetime], str] | None = None
    extra: bool = False  # dropped when the terminal is too narrow
    least: int = 0  # may be shortened to this width; 0: never shortened
    folds: bool = False  # continues on the next line instead of being cut
    right: bool = False
    status: bool = False
    style: Callable[[Item], str] | None = None


class Field(NamedTuple):
    """One line about a single object: `name` and `plain` in a pipe, `title` and `shown` on a terminal."""

    name: str
    title: str
    plain: object
    shown: str | None = None


def say(sentence: str) -> None:
    """A message for people, which --quiet leaves out; errors are raised."""
    if invocation().format != "quiet":
        message(clean(sentence))


def print_json(document: object) -> None:
    # Half of a surrogate pair cannot be encoded in UTF-8; stdout escapes it exactly as JSON does.
    unicode = sys.stdout is not None and sys.stdout.encoding.lower().replace("-", "") == "utf8"
    print(visible_json(json.dumps(document, indent=2, ensure_ascii=not unicode)))


def print_page(page: Item, columns: Sequence[Column], empty: str, identity: str = "id") -> None:
    items = page["items"]
    match invocation().format:
        case "json":
            print_json(page)
        case "quiet":
            print_lines((item[identity],) for item in items if item[identity] is not None)
        case _ if not base.on_terminal():
            print_lines((column.plain(item) for column in columns) for item in items)
        case _ if not items:
            say(empty)
        case _:
            print_table(items, columns)
            if page["next_cursor"]:
                say(f"There are more: use a higher --limit, or --cursor {page['next_cursor']}.")


def print_fields(document: Item, fields: Iterable[Field], identity: str = "id") -> None:
    match invocation().format:
        case "json":
            print_json(document)
        case "quiet":
            print_lines([(document[identity],)] if identity in document else [])
        case _ if not base.on_terminal():
            print_lines((field.name, field.plain) for field in fields if field.plain is not None)
        case _:
            _print_sheet(fields)


def print_for_machines(document: Item) -> None:
    """Print the document in a machine format only: as text, such a verb prints just its message."""
    if invocation().format != "text":
        print_fields(document, ())


def agreed(yes: bool, question: str, instead: str) -> bool:
    """Whether the user confirms; without a terminal, --yes is required."""
    if yes:
        return True
    if not base.can_ask():
        raise UsageError(f"Not a terminal: confirm with --yes (`{instead}`).")
    return click.confirm(clean(question), err=True)


def print_lines(rows: Iterable[Iterable[object]]) -> None:
    """Tab-separated, one line per row, whatever the cells contain."""
    for row in rows:
        print("\t".join(flat(_plain(cell)) for cell in row))


def console(width: int | None = None) -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, width=width)


def print_table(items: Sequence[Item], columns: Sequence[Column]) -> None:
    width = console().width
    made = table(items, columns, times.now(), width)
    # If even the shortest form is too wide, the terminal wraps the lines: text that users copy is never cut.
    needed = sum(column.width or 0 for column in made.columns) + GAP * (len(made.columns) - 1)
    console(max(width, needed)).print(made, crop=False)


def table(items: Sequence[Item], columns: Sequence[Column], at: datetime, width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    cells = {column: [_cell(column, item, at) for item in items] for column in columns}
    fitted = _fitted(cells, width)
    made = Table(box=None, header_style="bold", padding=(0, GAP, 0, 0), pad_edge=False)
    for column, room in fitted.items():
        side: Literal["left", "right"] = "right" if column.right else "left"
        overflow: Literal["fold", "ellipsis"] = "fold" if column.folds else "ellipsis"
        made.add_column(column.title, width=room, no_wrap=not column.folds, overflow=overflow, justify=side)
    for item, row in zip(items, zip(*(cells[column] for column in fitted), strict=True), strict=True):
        made.add_row(*(Text(cell, style=_style(column, item, cell)) for column, cell in zip(fitted, row, strict=True)))
    return made


def _style(column: Column, item: Item, cell: str) -> str:
    if column.style is not None:
        return column.style(item)
    return STATUS_STYLES.get(cell, "") if column.status else ""


def _fitted(cells: Mapping[Column, Sequence[str]], width: int) -> dict[Column, int]:
    """The columns that fit, each with its width.

    Empty extra columns are dropped first, then extra columns from the right until the rest fits with its long columns
    shortened. Then the longest of these are shortened step by step.
    """
    from rich.cells import cell_len

    widths = {
        column: max(map(cell_len, (column.title, *texts)))
        for column, texts in cells.items()
        if any(texts) or not column.extra
    }

    def excess(sizes: Iterable[int]) -> int:
        return sum(sizes) + GAP * (len(widths) - 1) - width

    for extra in reversed([column for column in widths if column.extra]):
        if excess(_shortened(column, size) for column, size in widths.items()) > 0:
            del widths[extra]
    while (over := excess(widths.values())) > 0:
        long = [column for column in widths if 0 < column.least < widths[column]]
        if not long:
            break
        longest = max(long, key=widths.__getitem__)
        widths[longest] = max(longest.least, widths[longest] - max(1, over // 4))
    return widths


def _shortened(column: Column, size: int) -> int:
    """How short a column may get before extra columns are dropped instead."""
    if not column.least:
        return size
    return min(size, column.least if column.extra else max(column.least, ROOMY))


def _cell(column: Column, item: Item, at: datetime) -> str:
    return flat(column.shown(item, at) if column.shown else _plain(column.plain(item)))


def _print_sheet(fields: Iterable[Field]) -> None:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for field in fields:
        text = _plain(field.plain) if field.shown is None or field.plain is None else field.shown
        if text:
            style = STATUS_STYLES.get(text, "") if field.name == "status" else ""
            made.add_row(field.title, Text(clean(text), style=style))
    console().print(made)


def print_figures(rows: Sequence[tuple[str, object]]) -> None:
    """Names with their numbers, on a terminal."""
    from rich.table import Table

    made = Table(box=None, show_header=False, padding=(0, GAP, 0, 0), pad_edge=False)
    made.add_column(no_wrap=True)
    made.add_column(justify="right", no_wrap=True)
    for name, value in rows:
        made.add_row(clean(name), f"{value:,}" if isinstance(value, int) else clean(_plain(value)))
    console().print(made)


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
