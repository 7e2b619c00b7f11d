"""The store contains no messages for people, and the use cases contain no SQL."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import detent

ROOT = Path(detent.__file__).parent
# Errors whose message the caller writes for a person; those with a message of their own (JobNotFound) may be raised.
WORDED = {"UsageError", "ManyFaults", "NotFound", "NotAuthorised", "RunFailed", "Conflict", "QuotaReached"}
# The role and the embedded server are set up by an operator, who reads what is wrong with them.
SETTING_UP = {"role.py", "servers.py", "pooler.py", "migrate.py", "embedded.py", "embedded_host.py", "grants.py"}


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).glob("*.py"))


@pytest.mark.parametrize(
    "path", [each for each in modules("store") if each.name not in SETTING_UP], ids=lambda p: p.name
)
def test_the_store_words_no_error_for_people(path: Path) -> None:
    raised = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not raised & WORDED


@pytest.mark.parametrize("path", modules("jobs"), ids=lambda p: p.name)
def test_a_use_case_runs_no_statement_itself(path: Path) -> None:
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }
    assert not called & {"statement", "fetch", "fetch_guarded", "execute", "fetchval", "fetchrow"}
