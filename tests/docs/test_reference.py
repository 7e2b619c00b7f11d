"""The reference says what the code does, every page is in the navigation, and no link leads nowhere."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.settings.settings import SETTINGS
from tests.docs.docs_pages import ROOT, pages
from tests.docs.reference_pages import PURPOSES, TABLES, filled, pages_with_tables

ALONE = frozenset({"README.md"})
AT_THE_ROOT = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
# Pages that their own index lists.
LISTED_ELSEWHERE = ("docs/runbooks/", "docs/benchmarks/", "docs/decisions/")
_LINK = re.compile(r"\]\((?!https?://)(?P<target>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
_HEADING = re.compile(r"#+ (?P<text>.+)")


@pytest.mark.parametrize("page", pages_with_tables(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_table_made_from_the_code_is_current(page: Path) -> None:
    written = page.read_text("utf-8")
    assert written == filled(written), "run `python -m tests.docs.reference_pages`"


def test_every_table_has_its_page() -> None:
    found = {name for page in pages_with_tables() for name in re.findall("<!-- table: ([a-z ]+) -->", page.read_text())}
    assert found == set(TABLES)


def test_every_setting_has_a_purpose() -> None:
    assert set(PURPOSES) == set(SETTINGS)


@pytest.mark.parametrize("page", [*pages(), *AT_THE_ROOT])
def test_no_link_leads_nowhere(page: str) -> None:
    source = ROOT / page
    for link in _LINK.finditer(without_code(source.read_text("utf-8"))):
        target = (source.parent / link["target"]).resolve() if link["target"] else source
        assert target.exists(), f"{page}: {link[0]}"
        if link["anchor"]:
            assert link["anchor"] in set(anchors_of(target)), f"{page}: {link[0]}"


def test_every_page_is_in_the_navigation_once() -> None:
    configuration = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    listed = list(leaves(configuration["project"]["nav"]))
    expected = [page.removeprefix("docs/") for page in pages() if page not in ALONE]
    assert sorted(listed) == sorted(expected)


def test_the_start_page_lists_every_page() -> None:
    linked = {link["target"] for link in _LINK.finditer((ROOT / "docs/index.md").read_text("utf-8"))}
    expected = {
        page.removeprefix("docs/")
        for page in pages()
        if page not in ALONE | {"docs/index.md"}
        and (page.endswith("/index.md") or not page.startswith(LISTED_ELSEWHERE))
    }
    assert expected <= linked, f"docs/index.md does not list {sorted(expected - linked)}"


@pytest.mark.parametrize("folder", LISTED_ELSEWHERE)
def test_an_index_lists_every_page_of_its_folder(folder: str) -> None:
    linked = {link["target"] for link in _LINK.finditer((ROOT / folder / "index.md").read_text("utf-8"))}
    expected = {page.removeprefix(folder) for page in pages() if page.startswith(folder)} - {"index.md"}
    assert expected <= linked, f"{folder}index.md does not list {sorted(expected - linked)}"


def test_the_readme_comes_to_the_first_command_at_once_and_to_its_end_soon() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.partition("```")[0].split()) < 120
    assert len(text.split()) < 680


def leaves(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for value in entry.values() if isinstance(entry, dict) else entry:
            yield from leaves(value)


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors_of(page: Path) -> Iterator[str]:
    """As GitHub and Python-Markdown both make them of plain headings."""
    for heading in _HEADING.finditer(page.read_text("utf-8")):
        words = re.sub(r"[^\w\s-]", "", heading["text"].lower()).strip()
        yield re.sub(r"\s+", "-", words)
