"""What the writer of lines and progress keeps while the database takes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from detent.domain.run_output import ProgressMark
from detent.errors import DetentError, Unavailable
from detent.store.db import Rejected
from detent.worker.output import OutputWriter


class ReluctantOutput:
    """Fails with the next of these errors, if there is one, and does meanwhile what comes meanwhile."""

    def __init__(self, *errors: DetentError) -> None:
        self.errors = list(errors)
        self.written: dict[str, float] = {}
        self.meanwhile: Any = lambda: None

    async def add_progress(self, marks: Sequence[ProgressMark]) -> None:
        self.meanwhile()
        if self.errors:
            raise self.errors.pop(0)
        if any(mark.message == "bad" for mark in marks):
            raise Rejected("bad", None, "22021")
        self.written |= {mark.run_id: mark.fraction for mark in marks}


def mark(run: str, fraction: float, message: str = "") -> ProgressMark:
    return ProgressMark(run, 1, fraction, message, 0.0)


def writer_to(output: ReluctantOutput) -> OutputWriter:
    return OutputWriter(SimpleNamespace(output=output), 1 << 20)  # type: ignore[arg-type] # the only part it uses


async def test_progress_is_written_when_the_database_answers_again() -> None:
    output = ReluctantOutput(Unavailable("away"))
    writer = writer_to(output)
    writer.receive(mark("a", 0.2))
    writer.receive(mark("b", 0.5))
    output.meanwhile = lambda: writer.receive(mark("a", 0.3))
    await writer.close()
    assert output.written == {}
    output.meanwhile = lambda: None
    await writer.close()
    assert output.written == {"a": 0.3, "b": 0.5}, "what came meanwhile is newer"


async def test_progress_that_nothing_has_collected_yet_is_written_at_the_end() -> None:
    output = ReluctantOutput()
    writer = writer_to(output)
    writer.progress("a", 1, 1.0, "done")
    await writer.close()
    assert output.written == {"a": 1.0}


async def test_progress_that_cannot_be_stored_keeps_no_other_waiting() -> None:
    output = ReluctantOutput()
    writer = writer_to(output)
    for each in (mark("a", 0.2), mark("b", 0.5, "bad"), mark("c", 0.7)):
        writer.receive(each)
    await writer.close()
    assert output.written == {"a": 0.2, "c": 0.7}
    output.written.clear()
    await writer.close()
    assert output.written == {}, "and it is not tried again"
