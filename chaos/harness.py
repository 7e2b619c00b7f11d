# ruff: noqa: T201 - a script talks on its standard output
"""What the scripts of this folder share: processes and the recording target of the system tests, figures and bounds.

Every script starts real processes on a fresh data folder, does something cruel to them, compares what the tables and
the target say with what was promised, prints a table of figures, and exits with 1 when a bound is broken.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from detent.store.db import connect
from tests.support import guardian
from tests.support.processes import Nodes, unexpected_tracebacks
from tests.support.sink import Sink

SHOWN_TRACEBACKS = 3


class Figure(NamedTuple):
    """One line of the table: what was measured, and (where something was promised) whether it was kept."""

    name: str
    value: str
    bound: str = ""
    kept: bool = True


class Scene(NamedTuple):
    """A fresh folder for processes, and the target their jobs call."""

    nodes: Nodes
    sink: Sink
    figures: list[Figure]

    @property
    def data(self) -> Path:
        return self.nodes.folder / "data"

    def note(self, name: str, value: object) -> None:
        self.figures.append(Figure(name, str(value)))

    def expect(self, name: str, value: object, wanted: object) -> None:
        self.figures.append(Figure(name, str(value), f"= {wanted}", value == wanted))

    def limit(self, name: str, seconds: float, most: float) -> None:
        self.figures.append(Figure(name, milliseconds(seconds), f"<= {milliseconds(most)}", seconds <= most))

    async def judge(self, name: str, verdict: Awaitable[None]) -> None:
        """A check that asserts: the table says whether it held, and the reason is printed."""
        try:
            await verdict
            self.figures.append(Figure(name, "yes", "= yes"))
        except AssertionError as error:
            print(f"\n{name}: {error}")
            self.figures.append(Figure(name, "NO", "= yes", kept=False))


@asynccontextmanager
async def looking_at(data: Path) -> AsyncIterator[Any]:
    connection = await connect(f"postgresql://detent@/detent?host={data / 'socket'}&port=5432", "detent")
    try:
        yield connection
    finally:
        await connection.close()


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: a value that was measured, never one between two."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


async def sleep_until(moment: datetime) -> None:
    await asyncio.sleep(max(0.0, moment.timestamp() - datetime.now(moment.tzinfo).timestamp()))


def perform(
    title: str,
    script: Callable[[Scene], Coroutine[Any, Any, None]],
    *,
    tracebacks: bool = False,
    excused: str | None = None,
) -> int:
    """Run a script on a fresh scene and print its table; the exit code. `tracebacks`: its handlers log some.
    `excused`: an error that is expected, and the traceback of which is too."""
    guardian.protect()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="detent-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)  # the server's user has to get through when root runs this
        nodes = Nodes(folder, DETENT_DATA_DIR=str(folder / "data"))
        with Sink() as sink, closing(nodes):
            try:
                asyncio.run(script(Scene(nodes, sink, figures)))
            except AssertionError as error:
                print(f"\n{error}")
                figures.append(Figure("the script", "did not end", "", kept=False))
    if not tracebacks:
        clean = not any(_tracebacks(text, excused) for _, text in nodes.logs)
        figures.append(Figure("logs without a traceback", "yes" if clean else "NO", "= yes", clean))
    return report(title, figures, nodes, excused)


def _tracebacks(text: str, excused: str | None) -> list[str]:
    lines = unexpected_tracebacks(text)
    return [line for line in lines if excused is None or excused not in line]


def report(title: str, figures: Sequence[Figure], nodes: Nodes, excused: str | None = None) -> int:
    print(f"\n{title}")
    widths = [max(len(text) for text in column) for column in zip(*(figure[:3] for figure in figures), strict=True)]
    for name, value, bound, kept in figures:
        verdict = "" if not bound and kept else "ok" if kept else "BROKEN"
        print(f"  {name:<{widths[0]}}  {value:>{widths[1]}}  {bound:<{widths[2]}}  {verdict}".rstrip())
    if all(figure.kept for figure in figures):
        return 0
    for name, text in nodes.logs:
        print(f"\n--- the end of the log of {name} ---\n{text[-4000:]}")
    for name, text in nodes.logs:
        for line in _tracebacks(text, excused)[:SHOWN_TRACEBACKS]:
            print(f"\n--- a traceback of {name} ---\n{line}")
    return 1
