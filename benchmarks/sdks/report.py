"""The page of the manual that shows every cell: a table of verdicts, and beneath it the code with what it printed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from points import POINTS, SYSTEMS, Point, System

SIGNS = {"yes": "**yes**", "partly": "partly", "no": "no", "missing": "no"}


class Verdict(NamedTuple):
    word: str
    sentence: str
    output: str


def page(verdicts: Mapping[tuple[str, str], Verdict], versions: Mapping[str, str], cells: Path, head: str) -> str:
    parts = [head.replace("{versions}", _versions(versions)), _table(verdicts), _setups(cells.parent / "setups")]
    parts += [_point(point, verdicts, cells) for point in POINTS]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{system.title} {versions.get(system.name, '?')}" for system in SYSTEMS)


def _table(verdicts: Mapping[tuple[str, str], Verdict]) -> str:
    rows = [f"| | {' | '.join(system.title for system in SYSTEMS)} |", f"| --- {'| --- ' * len(SYSTEMS)}|"]
    for point in POINTS:
        words = [SIGNS[_verdict(verdicts, point, system).word] for system in SYSTEMS]
        rows.append(f"| [{point.title}](#{_anchor(point.title)}) | {' | '.join(words)} |")
    return "\n".join(rows)


def _setups(folder: Path) -> str:
    lines = ["## Set-up", "", "What the cells of a system share. The runner gives every cell an empty database."]
    for system in SYSTEMS:
        path = folder / f"{system.name}_setup.py"
        if path.exists():
            lines += ["", *_folded(f"{system.title}: `{path.name}`", path.read_text("utf-8"), "")]
    return "\n".join(lines)


def _point(point: Point, verdicts: Mapping[tuple[str, str], Verdict], cells: Path) -> str:
    lines = [f"## {point.title}", "", point.question, "", "| | | |", "| --- | --- | --- |"]
    for system in SYSTEMS:
        verdict = _verdict(verdicts, point, system)
        lines.append(f"| {system.title} | {SIGNS[verdict.word]} | {_escaped(verdict.sentence)} |")
    for system in SYSTEMS:
        path = cells / point.name / f"with_{system.name}.py"
        if path.exists():
            output = _verdict(verdicts, point, system).output
            lines += ["", *_folded(system.title, path.read_text("utf-8"), output)]
    return "\n".join(lines)


def _folded(title: str, code: str, output: str) -> Sequence[str]:
    remark = "<!-- docs-test: syntax only: make compare-sdks runs it -->"
    lines = [f'??? note "{title}"', "", f"    {remark}", "    ```python", *_indented(code), "    ```"]
    if output:
        lines += ["", "    <!-- docs-test: drawing -->", "    ```text", *_indented(output), "    ```"]
    return lines


def _indented(text: str) -> Sequence[str]:
    return [f"    {line}".rstrip() for line in text.strip("\n").splitlines()]


def _verdict(verdicts: Mapping[tuple[str, str], Verdict], point: Point, system: System) -> Verdict:
    return verdicts.get((point.name, system.name), Verdict("missing", "not compared", ""))


def _escaped(sentence: str) -> str:
    return sentence.replace("|", "\\|").replace("<", "&lt;")


def _anchor(title: str) -> str:
    """The anchor of a heading. GitHub keeps a hyphen beside a space, the manual does not: such a title is refused."""
    words = re.sub(r"[^\w\s-]", "", title.lower()).strip()
    anchor = re.sub(r"\s", "-", words)
    if anchor != re.sub(r"[-\s]+", "-", words):
        raise ValueError(f"the heading {title!r} has one anchor on GitHub and another in the manual: word it plainly")
    return anchor
