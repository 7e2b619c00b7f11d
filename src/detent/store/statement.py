"""A SQL statement as a typed constant: `sql.run.CLAIM` is the text of `sql/run/claim.sql`."""

from __future__ import annotations

from functools import cached_property
from importlib import resources

# Every statement by its name, such as `run/claim`.
STATEMENTS: dict[str, Statement] = {}


class Statement:
    """One file of SQL, which is read when its text is first used."""

    def __init__(self, package: str, verb: str) -> None:
        self.name = f"{package.rpartition('.')[2]}/{verb}"
        self._package = package
        self._file = f"{verb}.sql"
        if self.name in STATEMENTS:
            raise ValueError(f"{self.name} is declared twice")
        STATEMENTS[self.name] = self

    @cached_property
    def text(self) -> str:
        return resources.files(self._package).joinpath(self._file).read_text("utf-8")

    def __repr__(self) -> str:
        return f"<Statement {self.name}>"


BY_JOB = "r.job = ANY (ARRAY(SELECT job FROM locked))"
BY_LANE = "r.lane >= 32768 AND r.lane = ANY (ARRAY(SELECT lane FROM locked))"


class StatementOfTasks(Statement):
    """The same statement for runs of tasks. It finds them by their lanes, of which each is used once. By its job it
    would read all live runs of a task, and those that have just ended."""

    def __init__(self, statement: Statement) -> None:
        self.name = f"{statement.name} of tasks"
        self._statement = statement
        STATEMENTS[self.name] = self

    @cached_property
    def text(self) -> str:
        text = self._statement.text
        if BY_JOB not in text:
            raise ValueError(f"{self._statement.name} does not find its rows by {BY_JOB}")
        return text.replace(BY_JOB, BY_LANE)
