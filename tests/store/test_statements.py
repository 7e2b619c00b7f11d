"""Every file of SQL is one constant, and every constant is used."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import detent.devtools.sql.bench
import detent.devtools.sql.demo
import detent.store.sql  # noqa: F401 - so that its statements are declared
from detent.store.statement import STATEMENTS, StatementOfTasks

SOURCE = Path(str(resources.files("detent")))
FOLDERS = (SOURCE / "store" / "sql", SOURCE / "devtools" / "sql")
# A statement of tasks is made of another one, and has no file of its own.
WITH_FILES = {name for name, each in STATEMENTS.items() if not isinstance(each, StatementOfTasks)}


def test_every_file_is_one_statement_and_every_statement_a_file() -> None:
    files = [file for folder in FOLDERS for file in folder.rglob("*.sql")]
    names = sorted(f"{file.parent.name}/{file.stem}" for file in files)
    assert names == sorted(WITH_FILES)
    assert {len(file.relative_to(folder).parts) for folder in FOLDERS for file in folder.rglob("*.sql")} == {2}


def test_a_statement_is_declared_under_the_name_of_its_file() -> None:
    for folder in FOLDERS:
        for module in folder.glob("*/__init__.py"):
            declared = re.findall(r'^(\w+) = Statement\(__name__, "(\w+)"\)$', module.read_text(), re.MULTILINE)
            assert declared
            assert all(constant == verb.upper() for constant, verb in declared)


def test_every_statement_is_used() -> None:
    sources = [file.read_text() for file in SOURCE.rglob("*.py") if "sql" not in file.relative_to(SOURCE).parts]
    used = set(re.findall(r"\b(\w+)\.([A-Z][A-Z_]*)\b", "\n".join(sources)))
    known = {(noun.upper(), constant) for noun, constant in used}
    constants = {name: tuple(name.upper().replace(" OF TASKS", "_TASKS").split("/")) for name in STATEMENTS}
    assert not [name for name, constant in constants.items() if constant not in known]


def test_a_statement_of_tasks_finds_live_runs_by_their_lanes() -> None:
    for name in STATEMENTS.keys() - WITH_FILES:
        text, original = STATEMENTS[name].text, STATEMENTS[name.removesuffix(" of tasks")].text
        assert "r.job = ANY" not in text
        assert text.count("r.lane = ANY (ARRAY(SELECT lane FROM locked))") == original.count("r.job = ANY")


def test_no_line_of_sql_is_longer_than_120_columns() -> None:
    long = [
        f"{name}:{number}"
        for name, statement in STATEMENTS.items()
        if name in WITH_FILES
        for number, line in enumerate(statement.text.splitlines(), 1)
        if len(line) > 120
    ]
    assert not long
