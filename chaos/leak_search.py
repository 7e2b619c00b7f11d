"""Searches every place where people or programs can look for the planted values of `chaos/secret_leaks.py`."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

from chaos.harness import Scene
from detent.store.embedded import EmbeddedServer
from tests.secrets.echo import Echo, Received
from tests.support.leaks import Runs, answers, pages, printed, spellings

COMMANDS = {
    "detent export": ["export"],
    "detent history export": ["history", "export"],
    "detent history export, CSV": ["history", "export", "--format", "csv"],
    "detent audit-log export": ["audit-log", "export"],
}
HISTORY = ("run_history", "attempts", "live_runs")


class Place(NamedTuple):
    """`shows_literals`: literal credentials of jobs may be there by design."""

    kind: str
    name: str
    text: str
    shows_literals: bool = False


class Surroundings(NamedTuple):
    """Where to search: `keys` by scope, and a run of each job."""

    scene: Scene
    server: EmbeddedServer
    echo: Echo
    url: str
    keys: Mapping[str, str]
    runs: Runs


class Searched:
    """What was found, and how much was searched, by kind of place."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        self.found: dict[str, list[str]] = {}
        self.by_design: dict[str, int] = {}

    async def add(self, place: Place, secrets: Mapping[str, str], literals: Mapping[str, str]) -> None:
        """In a thread: the targets of the jobs answer meanwhile."""
        found = await asyncio.to_thread(found_of, place.text, {**secrets, **literals})
        if place.shows_literals:
            self.by_design[place.kind] = self.by_design.get(place.kind, 0) + sum(name in literals for name in found)
            found = [name for name in found if name not in literals]
        self.places[place.kind] = self.places.get(place.kind, 0) + 1
        self.bytes[place.kind] = self.bytes.get(place.kind, 0) + len(place.text)
        self.found.setdefault(place.kind, []).extend(f"{name} in {place.kind}: {place.name}" for name in found)


def found_of(text: str, wanted: Mapping[str, str]) -> list[str]:
    """The names of the values that are in the text, in any form."""
    return [name for name, value in wanted.items() if any(form in text for form in spellings(value))]


async def places(around: Surroundings) -> AsyncIterator[Place]:
    """All but the archive, which there is at the end."""
    yield Place("pg_dump", "the database", await dump(around.server), shows_literals=True)
    yield Place("pg_dump of runs", "their tables", await dump(around.server, *HISTORY))
    for name, text in around.scene.nodes.logs:
        if name.startswith("serve"):
            yield Place("logs of nodes", name, text)
    yield Place("log of PostgreSQL", "its file", await asyncio.to_thread(around.server.log.read_text, errors="replace"))
    for scope in ("admin", "read"):
        open_to_it = scope == "admin"
        async for path, text in answers(around.url, around.keys[scope], around.runs):
            kind = "/metrics" if path == "/metrics" else f"API answers, {scope}"
            yield Place(kind, path, text, open_to_it and kind != "/metrics")
        async for path, text in pages(around.url, around.keys[scope], around.runs):
            yield Place(f"pages, {scope}", path, text, open_to_it)
    for kind, arguments in COMMANDS.items():
        text = await printed(around.scene.nodes.folder, around.url, around.keys["admin"], arguments)
        yield Place(kind, "stdout", text, shows_literals=kind == "detent export")
    for call in notices(around.echo):
        yield Place("notices received", str(call.headers.get("webhook-id")), received(call))


def notices(echo: Echo) -> list[Received]:
    return [call for call in echo.calls if call.mode == "notice"]


def received(call: Received) -> str:
    return "\n".join(f"{name}: {value}" for name, value in call.headers.items()) + "\n\n" + call.body.decode()


async def dump(server: EmbeddedServer, *tables: str) -> str:
    """The whole database as `pg_dump` writes it, or some tables with their partitions."""
    chosen = [f"--table=detent.{table}*" for table in tables]
    process = await asyncio.create_subprocess_exec(
        *(str(server.binaries / "pg_dump"), "--dbname", server.url, *chosen),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def archived(folder: Path) -> AsyncIterator[Place]:
    def unpacked() -> dict[str, str]:
        return {path.name: gzip.decompress(path.read_bytes()).decode() for path in sorted(folder.rglob("*.jsonl.gz"))}

    for name, text in (await asyncio.to_thread(unpacked)).items():
        yield Place("files of the archive", name, text)
