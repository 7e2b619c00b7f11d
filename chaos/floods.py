# ruff: noqa: T201 - a script talks on its standard output
"""A node under attack: `python -m chaos.floods [ATTACK …] [--seconds N] [--source DIR]`.

Each attack has a fresh node with an embedded PostgreSQL, and comes from a process of its own. Meanwhile another process
asks for /livez every 20 ms, and a job runs every second. Promised: every answer is 200, in 99 of 100 cases within
100 ms, and the memory of the node grows by less than 100 MB. The same questions to a bare server, which is not
attacked, show what the machine costs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from chaos.flood_attacks import ATTACKS, MEGABYTE
from chaos.harness import milliseconds, percentile
from tests.support import guardian
from tests.support.ledger import ALLOWED
from tests.support.processes import Node, Nodes
from tests.support.sink import Sink, http_target
from tests.support.waiting import until

ROOT = Path(__file__).parents[1]
QUIET = "quiet"
SECONDS = 8.0
MAX_WAIT = 0.1
MAX_GROWTH = 100 * MEGABYTE
MAX_LATENESS = 1.0
# What a process may usually open; the attackers open more.
FILES = 1024
FEWEST_ANSWERS = 0.8
HEADINGS = [
    "attack", "asked", "/livez, new connection", "/livez, kept connection", "bare server, new", "bare server, kept",
    "memory", "latest tick", "verdict",
]  # fmt: skip


class Seen(NamedTuple):
    """What one attack did. Waits and lateness are in seconds; a question without an answer waits for five."""

    fresh: list[float]
    kept: list[float]
    bare_fresh: list[float]
    bare_kept: list[float]
    wrong: list[str]
    grown: int
    lateness: list[float]
    missing: int
    failures: list[str]

    def broken(self, seconds: float) -> list[str]:
        """The promises that were not kept."""
        found = list(self.failures)
        for name, waits in (("a new", self.fresh), ("a kept", self.kept)):
            if len(waits) < FEWEST_ANSWERS * seconds / 0.02:
                found.append(f"only {len(waits)} questions were asked over {name} connection: the machine is too busy")
            elif percentile(waits, 0.99) >= MAX_WAIT:
                late = milliseconds(percentile(waits, 0.99))
                found.append(f"p99 of /livez over {name} connection is {late}, promised are {milliseconds(MAX_WAIT)}")
        if self.wrong:
            kinds = ", ".join(f"{count} x {kind}" for kind, count in Counter(self.wrong).items())
            found.append(f"answers to /livez that were not 200: {kinds}")
        if self.grown >= MAX_GROWTH:
            found.append(f"the node grew by {self.grown / MEGABYTE:.0f} MB, the bound is {MAX_GROWTH // MEGABYTE}")
        if self.missing:
            found.append(f"{self.missing} ticks were not called")
        elif max(self.lateness) >= MAX_LATENESS:
            found.append(f"a tick was {milliseconds(max(self.lateness))} late, the bound is 1 s")
        return found


async def suffer(name: str, seconds: float, nodes: Nodes, sink: Sink) -> Seen:
    with few_files():
        node = await nodes.start("serve")
    target = http_target(sink)
    # A tick that comes before the run of the one before has ended is called all the same.
    node.client.create_job({"name": "second", "schedule": "* * * * * *", "target": target, **ALLOWED})
    await until(lambda: sink.calls, 30, "the first tick")
    began = datetime.now(UTC)
    found = await watched(name, seconds, node)
    lateness, missing = await ticks(sink, began, datetime.now(UTC))
    failures = [] if node.process.poll() is None else [f"the node ended with code {node.process.returncode}"]
    failures += ["the log has a traceback"] if "Traceback" in node.text else []
    return Seen(**found, lateness=lateness, missing=missing, failures=failures)


@contextlib.contextmanager
def few_files() -> Iterator[None]:
    """Processes that are started in this block may open only FILES files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def watched(name: str, seconds: float, node: Node) -> dict[str, Any]:
    """Attack the node, and what was seen of it meanwhile."""
    port = str(urlsplit(node.url).port)
    watch = await started("chaos.livez_watch", port, str(node.process.pid))
    assert watch.stdout is not None
    assert await watch.stdout.readline() == b"ready\n"
    if name == QUIET:
        await asyncio.sleep(seconds)
    else:
        attacker = await started("chaos.flood_attacks", name, port, str(seconds))
        assert await asyncio.wait_for(attacker.wait(), seconds + 30) == 0, f"the attacker of {name} failed"
    printed, _ = await asyncio.wait_for(watch.communicate(b""), 60)
    found: dict[str, Any] = json.loads(printed)
    return found


async def started(module: str, *arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", module, *arguments]
    return await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe, limit=64 * MEGABYTE)


async def ticks(sink: Sink, began: datetime, ended: datetime) -> tuple[list[float], int]:
    """How late the calls of these seconds were, and how many were not made."""
    first = began.replace(microsecond=0) + timedelta(seconds=1)
    due = {first + timedelta(seconds=number) for number in range(int((ended - first).total_seconds()) + 1)}

    def open_ticks() -> int:
        return len(due - {call.scheduled_at for call in sink.calls})

    with contextlib.suppress(AssertionError):
        await until(lambda: not open_ticks(), 10, "the last tick")
    return [call.lateness for call in sink.calls if call.scheduled_at in due], open_ticks()


def play(name: str, seconds: float, source: Path | None) -> tuple[list[str], bool]:
    """The row of one attack, and whether every promise was kept."""
    with tempfile.TemporaryDirectory(prefix="detent-chaos-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o711)  # the server's user has to get through when root runs this
        other = {} if source is None else {"PYTHONPATH": str(source.absolute())}
        nodes = Nodes(folder, DETENT_DATA_DIR=str(folder / "data"), **other)
        try:
            with Sink() as sink, closing(nodes):
                seen = asyncio.run(suffer(name, seconds, nodes, sink))
        except (AssertionError, TimeoutError) as error:
            print(f"  {name}: it did not come to an end: {error}\n{nodes.logs[0][1][-4000:]}")
            return [name, *("" for _ in HEADINGS[2:]), "unknown"], False
    broken = seen.broken(seconds)
    print(f"  {name}: {'; '.join(broken) or 'ok'}", flush=True)
    return cells(name, seen, "violated" if broken else "ok"), not broken


def cells(name: str, seen: Seen, verdict: str) -> list[str]:
    latest = f"{seen.missing} missing" if seen.missing else milliseconds(max(seen.lateness))
    waits = [shown(each) for each in (seen.fresh, seen.kept, seen.bare_fresh, seen.bare_kept)]
    asked = str(len(seen.fresh) + len(seen.kept))
    return [name, asked, *waits, f"{seen.grown / MEGABYTE:+.0f} MB", latest, verdict]


def shown(waits: Sequence[float]) -> str:
    return " / ".join(f"{percentile(waits, share) * 1000:.1f}" for share in (0.5, 0.99, 1.0))


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    lines = ([cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in (HEADINGS, *rows))
    return "\n".join("  ".join([line[0].strip().ljust(widths[0]), *line[1:]]) for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join([QUIET, *ATTACKS]))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each attack lasts (default: 8)")
    parser.add_argument("--source", type=Path, help="the folder of another copy of the product than the installed one")
    given = parser.parse_args()
    unknown = set(given.attacks) - {QUIET, *ATTACKS}
    if unknown:
        parser.error(f"there is no attack {', '.join(sorted(unknown))}: choose from {', '.join([QUIET, *ATTACKS])}")
    guardian.protect()
    print("floods: a node under attack")
    played = [play(name, given.seconds, given.source) for name in given.attacks or [QUIET, *ATTACKS]]
    print(f"\np50 / p99 / longest, in ms\n{table([row for row, _ in played])}")
    return 0 if all(ok for _, ok in played) else 1


if __name__ == "__main__":
    sys.exit(main())
