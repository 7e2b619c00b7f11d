"""A progress bar: on a terminal and without --quiet only, removed when the work is done. Without a total it is a
counter."""

from __future__ import annotations

from typing import Any

from detent.cli import base
from detent.cli.invocation import invocation


class Progress:
    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._total = total
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if base.can_draw() and invocation().format != "quiet":
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=self._total)
        return self

    def update(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def advance(self, by: int = 1) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, by)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
