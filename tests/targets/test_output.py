"""What is kept of the lines of one attempt."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime

from detent.domain.job import PythonTarget
from detent.domain.masking import Mask
from detent.domain.run import Call
from detent.domain.run_output import (
    HEAD_LINES,
    LONGEST_LINE,
    TAIL_LINES,
    TAIL_PART,
    OutputChunk,
    OutputLine,
    decode_lines,
    left_out,
)
from detent.targets.output import AttemptOutput
from detent.targets.outputs import Outputs

LIMIT = 131_072
RUN = "01890000-0000-7000-8000-000000000001"
SECRET = "s3cr3t-v4lue-of-a-key"


def call(mask: Mask | None = None) -> Call:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Call("1", "job", RUN, at, 2, "key", 7, None, PythonTarget("f"), 9, mask=mask)


class Kept:
    """Collects what an attempt wrote, as the writer does: a later chunk replaces one with the same part."""

    def __init__(self, limit: int = LIMIT, mask: Mask | None = None) -> None:
        self.woken = 0
        self.chunks: dict[int, OutputChunk] = {}
        self.output = AttemptOutput(call(mask), limit, self._changed)

    def _changed(self, output: AttemptOutput) -> None:
        self.woken += 1

    def collect(self, now: float) -> bool:
        chunks, more = self.output.collect(now)
        self.chunks |= {chunk.part: chunk for chunk in chunks}
        return more

    def lines(self) -> list[OutputLine]:
        return [line for part in sorted(self.chunks) for line in decode_lines(self.chunks[part].lines)]

    def messages(self) -> list[str]:
        return [line.message for line in self.lines()]


def test_lines_are_kept_with_their_numbers_levels_and_loggers() -> None:
    kept = Kept()
    kept.output.add(1.5, logging.WARNING, "shop", "one")
    kept.output.add(2.0, logging.INFO, "shop", "two")
    assert not kept.collect(0.0)
    assert kept.lines() == [OutputLine(1, 1500, "warning", "shop", "one"), OutputLine(2, 2000, "info", "shop", "two")]
    assert (kept.chunks[1].run_id, kept.chunks[1].token, kept.chunks[1].attempt) == (RUN, 7, 2)


def test_the_first_and_the_last_lines_are_kept_and_the_others_counted() -> None:
    kept = Kept()
    for number in range(10_000):
        kept.output.add(0.0, logging.INFO, "shop", f"line {number}")
    kept.output.end()
    kept.collect(0.0)
    numbers = [line.number for line in kept.lines()]
    assert numbers == [*range(1, HEAD_LINES + 1), *range(10_001 - TAIL_LINES, 10_001)]
    assert left_out(kept.lines()) == 10_000 - HEAD_LINES - TAIL_LINES
    assert kept.messages()[-1] == "line 9999"


def test_first_and_last_lines_together_stay_within_the_limit() -> None:
    kept = Kept(limit=20_000)
    for number in range(1000):
        kept.output.add(0.0, logging.INFO, "shop", f"{number} {'x' * 300}")
    kept.output.end()
    kept.collect(0.0)
    assert sum(len(chunk.lines) for chunk in kept.chunks.values()) < 22_000
    assert kept.messages()[0].startswith("0 ")
    assert kept.messages()[-1].startswith("999 ")


def test_the_last_lines_are_handed_over_once_a_second_while_they_change() -> None:
    kept = Kept()
    for number in range(HEAD_LINES + 10):
        kept.output.add(0.0, logging.INFO, "shop", str(number))
    assert not kept.collect(100.0)
    assert kept.messages()[-1] == str(HEAD_LINES + 9)
    kept.output.add(0.0, logging.INFO, "shop", "again")
    assert kept.collect(100.5), "not yet, and nothing wakes the collector for it"
    assert kept.messages()[-1] == str(HEAD_LINES + 9)
    assert not kept.collect(101.0)
    assert kept.messages()[-1] == "again"


def test_the_collector_is_woken_once_until_it_has_collected_all() -> None:
    kept = Kept()
    for _ in range(3):
        kept.output.add(0.0, logging.INFO, "shop", "a line")
    assert kept.woken == 1
    kept.collect(0.0)
    kept.output.add(0.0, logging.INFO, "shop", "a line")
    assert kept.woken == 2


def test_printed_text_becomes_lines_also_where_an_end_is_missing() -> None:
    kept = Kept()
    for text in ("one", "\n", "two\nthr", "ee", "\n\n", "last"):
        kept.output.printed("stdout", text)
    kept.output.end()
    kept.collect(0.0)
    assert kept.messages() == ["one", "two", "three", "", "last"]
    assert {line.logger for line in kept.lines()} == {"stdout"}


def test_the_streams_of_a_run_do_not_mix() -> None:
    kept = Kept()
    kept.output.printed("stdout", "out")
    kept.output.printed("stderr", "err\n")
    kept.output.printed("stdout", "put\n")
    kept.collect(0.0)
    assert [(line.logger, line.message) for line in kept.lines()] == [("stderr", "err"), ("stdout", "output")]


def test_output_of_a_command_becomes_lines_and_only_the_last_bytes_of_a_flood_are_kept() -> None:
    kept = Kept(limit=20_000)
    kept.output.feed(b"first\nsec")
    kept.output.feed(b"ond\n")
    for start in range(0, 100_000, 1000):
        kept.output.feed(b"".join(b"line %d\n" % number for number in range(start, start + 1000)))
    kept.output.feed(b"no end")
    kept.output.end()
    kept.collect(0.0)
    lines = kept.lines()
    assert [line.message for line in lines[:3]] == ["first", "second", "line 0"]
    assert [line.message for line in lines[-2:]] == ["line 99999", "no end"]
    assert lines[-1].number == 100_003
    assert {line.number - int(line.message.split()[1]) for line in lines[2:-1]} == {3}, "each has its own number"
    assert len(lines) <= HEAD_LINES + TAIL_LINES


def test_bytes_that_are_no_text_and_endless_lines_are_kept_in_a_form_that_can_be_stored() -> None:
    kept = Kept()
    kept.output.feed(b"\xff\x00\n")
    kept.output.feed(b"x" * 1_000_000)
    kept.output.feed(b"end\n")
    kept.collect(0.0)
    first, second = kept.messages()
    assert first == "\ufffd\ufffd"
    assert len(second) < LONGEST_LINE + 100
    assert second.endswith("end")


def test_secrets_are_masked_in_first_lines_last_lines_and_long_ones() -> None:
    kept = Kept(mask=Mask([SECRET]))
    kept.output.add(0.0, logging.INFO, "shop", f"key={SECRET}")
    kept.output.add(0.0, logging.INFO, "shop", "x" * (LONGEST_LINE // 2 - 5) + SECRET + "x" * LONGEST_LINE)
    for _ in range(HEAD_LINES):
        kept.output.printed("stdout", f"again {SECRET}\n")
    kept.output.end()
    kept.collect(0.0)
    assert SECRET not in "".join(kept.messages())
    assert SECRET[:8] not in "".join(kept.messages())
    assert kept.chunks.keys() == {1, TAIL_PART}


def test_secrets_are_masked_in_the_output_of_a_command() -> None:
    kept = Kept(mask=Mask([SECRET]))
    for _ in range(HEAD_LINES + 100):
        kept.output.feed(f"key={SECRET}\n".encode())
    kept.output.end()
    kept.collect(0.0)
    assert SECRET not in "".join(kept.messages())


def test_lines_of_several_threads_are_all_counted() -> None:
    kept = Kept()

    def write() -> None:
        for _ in range(2_000):
            kept.output.add(0.0, logging.INFO, "shop", "a line")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept.output.end()
    kept.collect(0.0)
    assert kept.lines()[-1].number == 8_000


def test_an_attempt_keeps_only_its_last_lines_while_the_writer_is_behind() -> None:
    outputs = Outputs(LIMIT, lambda: None)
    outputs.full = True
    output = outputs.begin(call())
    assert output is not None
    output.add(0.0, logging.INFO, "shop", "one")
    output.end()
    (chunk,) = outputs.collect().chunks
    assert (chunk.part, chunk.first) == (TAIL_PART, 1)


def test_nothing_is_kept_where_the_limit_is_zero() -> None:
    assert Outputs(0, lambda: None).begin(call()) is None
