"""Answers in the shape that was asked for: tables for people, tab-separated lines for pipes, JSON, or ids.

Data goes to stdout and talk to stderr. A table leaves out what is only nice to have, and shortens what is long,
until it fits the terminal; a pipe gets every column whole.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from detent.cli import base, times
from detent.cli.session import session
from detent.cli.text import clean, flat, talk
from detent.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console
    from rich.table import Table

Item = Mapping[str, Any]
GAP = 2  # between the columns of a table
ROOMY = 30  # what matters is not shortened below this to make room for extras

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
    """`plain` is what a pipe gets; `shown`, where given, what a person sees instead."""

    title: str
    plain: Callable[[Item], object]
    shown: Callable[[Item, datetime], str] | None = None
    extra: bool = False  # left out where there is no room
    least: int = 0  # may be shortened to this width where there is little room; 0: never
    folds: bool = False  # goes on in the next line instead of being cut
    right: bool = False
    status: bool = False
    style: Callable[[Item], str] | None = None


class Field(NamedTuple):
    """One line of a single thing: the name programs see, the title people see, and the value for each."""

    name: str
    title: str
    plain: object
    shown: str | None = None


def say(sentence: str) -> None:
    talk(clean(sentence))


def print_json(document: object) -> None:
    # What UTF-8 cannot hold, half of a surrogate pair, is escaped by stdout exactly as JSON escapes it.
    unicode = sys.stdout is not None and sys.stdout.encoding.lower().replace("-", "") == "utf8"
    print(json.dumps(document, indent=2, ensure_ascii=not unicode))


def print_page(page: Item, columns: Sequence[Column], empty: str, identity: str = "id") -> None:
    items = page["items"]
    match session().shape:
        case "json":
            print_json(page)
        case "quiet":
            print_lines((item[identity],) for item in items)
        case _ if not base.on_terminal():
            print_lines((column.plain(item) for column in columns) for item in items)
        case _ if not items:
            say(empty)
        case _:
            print_table(items, columns)
            if page["next_cursor"]:
                say(f"There are more: give a higher --limit, or --cursor {page['next_cursor']}.")


def print_fields(document: Item, fields: Iterable[Field], identity: str = "id") -> None:
    match session().shape:
        case "json":
            print_json(document)
        case "quiet":
            print_lines([(document[identity],)])
        case _ if not base.on_terminal():
            print_lines((field.name, field.plain) for field in fields if field.plain is not None)
        case _:
            _print_sheet(fields)


def print_for_machines(document: Item) -> None:
    """For verbs whose whole answer to a person is the sentence they say."""
    if session().shape != "people":
        print_fields(document, ())


def agreed(yes: bool, question: str, instead: str) -> bool:
    """Whether a person agrees; where nobody can be asked, --yes must have been given."""
    if yes:
        return True
    if not base.can_ask():
        raise UsageError(f"Nobody can be asked here whether this is meant: say so with `{instead}`.")
    return click.confirm(clean(question), err=True)


def print_lines(rows: Iterable[Iterable[object]]) -> None:
    """Tab-separated, one line each, whatever is inside."""
    for row in rows:
        print("\t".join(flat(_plain(cell)) for cell in row))


def console(width: int | None = None) -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, width=width)


def print_table(items: Sequence[Item], columns: Sequence[Column]) -> None:
    width = console().width
    made = table(items, columns, times.now(), width)
    # Where even the least is too wide, the terminal breaks the lines: what people copy is never cut.
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

    Extras that say nothing are left out, then extras from the right until the rest fits with its long columns
    shortened; then the longest of these give way, a little at a time.
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
    """How short a column may get before extras are left out instead."""
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


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
