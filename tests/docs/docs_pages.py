"""The pages of the manual and the code blocks in them.

A comment right above a block says what cannot be read off the block itself:

    <!-- docs-test: server -->                     it keeps running: started, waited for, stopped at the end of the page
    <!-- docs-test: server instead -->             the same, after the servers before it were stopped
    <!-- docs-test: exit 5 -->                     it ends with this code
    <!-- docs-test: syntax only: installs it -->   it cannot be run here, for this reason
    <!-- docs-test: printed by: detent … -->       a text is printed by this command
    <!-- docs-test: drawing -->                    a text is a drawing
    <!-- docs-test: wrong on purpose -->           a file of jobs that must be refused

A block with a title, ```python title="shop.py", is that file: it is there for the blocks that follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LANGUAGES = ("console", "sh", "python", "json", "yaml", "toml", "sql", "ini", "text")

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)")
_MARKER = re.compile(r"\s*<!-- docs-test: (?P<marker>.+?) -->\s*")
_KNOWN = re.compile(r"|server|server instead|exit \d+|drawing|wrong on purpose|(syntax only|printed by): .+")
_TITLE = re.compile(r'title="(?P<title>[^"]+)"')


class Block(NamedTuple):
    page: str
    line: int
    language: str
    title: str | None
    marker: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def has_known_marker(self) -> bool:
        return _KNOWN.fullmatch(self.marker) is not None

    @property
    def is_server(self) -> bool:
        return self.marker in ("server", "server instead")

    @property
    def only_syntax(self) -> bool:
        return self.marker.startswith("syntax only: ")

    @property
    def exit_code(self) -> int:
        return int(self.marker.removeprefix("exit ")) if self.marker.startswith("exit ") else 0


def pages() -> list[str]:
    """Every page, as a path from the root of the repository."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(page.relative_to(ROOT)) for page in found]


def blocks_of(page: str) -> list[Block]:
    return list(_blocks(page, (ROOT / page).read_text("utf-8")))


def _blocks(page: str, text: str) -> Iterator[Block]:
    marker = ""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        fence = _FENCE.fullmatch(line)
        if fence is None:
            found = _MARKER.fullmatch(line)
            marker = found["marker"] if found else marker if not line.strip() else ""
            continue
        inside = []
        for _, inner in lines:
            if inner.strip() == fence["fence"]:
                break
            inside.append(inner.removeprefix(fence["indent"]))
        else:
            raise AssertionError(f"{page}:{number}: the block is never closed")
        info = fence["info"].strip()
        title = _TITLE.search(info)
        language = info.split(maxsplit=1)[0] if info else ""
        yield Block(page, number, language, title["title"] if title else None, marker, "\n".join(inside) + "\n")
        marker = ""
