"""Which lines belong to a run: those of its own code, and of no other."""

# ruff: noqa: T201 - printing is what is tested

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import structlog

from detent.telemetry import log
from detent.telemetry.capture import Handling, RunStream, captured_streams
from detent.telemetry.log import captured_logging, configure


class Sink:
    """A run that keeps its lines here."""

    def __init__(self, *, forwards: bool = True) -> None:
        self.lines: list[tuple[str, str]] = []
        self._forwards = forwards

    @property
    def facts(self) -> Mapping[str, object]:
        return {"job": "report", "run_id": "1", "attempt": 1}

    def logged(self, record: logging.LogRecord) -> bool:
        self.lines.append((record.levelname, record.getMessage()))
        return self._forwards

    def printed(self, stream: str, text: str) -> None:
        self.lines.append((stream, text))


Log = Callable[[], str]


@pytest.fixture
def logs(capsys: pytest.CaptureFixture[str]) -> Iterator[Log]:
    """What the log of the node has; the settings of both kinds of loggers are afterwards as before."""
    root, run = logging.getLogger(), logging.getLogger("detent.run")
    before, level = (root.level, list(root.handlers), run.level), log._level
    yield lambda: capsys.readouterr().err
    structlog.reset_defaults()
    log._level = level
    root.handlers[:] = before[1]
    root.setLevel(before[0])
    run.setLevel(before[2])


def test_info_lines_of_any_logger_reach_the_run_and_the_log_with_its_facts(logs: Log) -> None:
    configure("json", "info")
    sink = Sink()
    with Handling(None, sink):
        logging.getLogger("shop.orders").info("order %d", 7)
        logging.getLogger("shop.orders").debug("not this one")
    logging.getLogger("shop.orders").info("outside of runs")
    assert sink.lines == [("INFO", "order 7")]
    first, second = logs().splitlines()
    assert '"job": "report"' in first
    assert '"run_id": "1"' in first
    assert "order 7" in first
    assert "outside of runs" in second
    assert "run_id" not in second


def test_a_record_that_cannot_be_formatted_does_not_fail_the_code_that_logs_it(logs: Log) -> None:
    configure("json", "info")
    sink = Sink()
    with Handling(None, sink):
        logging.getLogger("shop.orders").info("order %d of %d", 7)
        logging.getLogger("shop.orders").info("order 8")
    assert sink.lines == [("INFO", "order 8")]
    assert "Logging error" in logs()


def test_lines_reach_the_run_whatever_level_the_log_of_the_node_has(logs: Log) -> None:
    configure("json", "error")
    sink = Sink()
    with Handling(None, sink):
        logging.getLogger("shop.orders").info("order 7")
    assert sink.lines == [("INFO", "order 7")]
    assert logs() == ""


def test_the_log_of_the_node_leaves_out_what_the_run_says(logs: Log) -> None:
    configure("json", "info")
    with Handling(None, Sink(forwards=False)):
        logging.getLogger("shop.orders").info("one of many")
    assert logs() == ""


def test_an_app_that_configured_logging_itself_keeps_its_handlers_and_runs_get_their_lines(logs: Log) -> None:
    configure("json", "info")
    own = io.StringIO()
    logging.basicConfig(level=logging.INFO, handlers=[logging.StreamHandler(own)], force=True)
    sink = Sink()
    with captured_logging(), captured_logging(), Handling(None, sink):
        logging.getLogger("shop.orders").info("order 7")
    assert sink.lines == [("INFO", "order 7")]
    assert own.getvalue() == "INFO:shop.orders:order 7\n"
    assert logs() == "", "the app writes its log"


def test_what_runs_print_is_theirs_and_printed_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    sink = Sink()
    with captured_streams():
        print("outside")
        with Handling(None, sink):
            print("inside")
            print("a fault", file=sys.stderr)
        assert isinstance(sys.stdout, RunStream)
        assert sys.stdout.isatty() is False
    assert not isinstance(sys.stdout, RunStream)
    assert "".join(text for stream, text in sink.lines if stream == "stdout") == "inside\n"
    assert "".join(text for stream, text in sink.lines if stream == "stderr") == "a fault\n"
    assert capsys.readouterr() == ("outside\ninside\n", "a fault\n")


async def test_runs_at_the_same_time_each_have_their_own_lines() -> None:
    async def handler(sink: Sink, word: str) -> None:
        with Handling(None, sink):
            for _ in range(3):
                print(word)
                await asyncio.sleep(0)
                await asyncio.to_thread(print, f"{word} in a thread")

    one, two = Sink(), Sink()
    with captured_streams():
        await asyncio.gather(handler(one, "one"), handler(two, "two"))
    assert {text.split()[0] for _, text in one.lines if text.strip()} == {"one"}
    assert {text.split()[0] for _, text in two.lines if text.strip()} == {"two"}
    assert len([text for _, text in one.lines if "in a thread" in text]) == 3


def test_a_thread_of_the_process_that_runs_no_handler_has_no_run() -> None:
    sink = Sink()
    with captured_streams(), Handling(None, sink):
        thread = threading.Thread(target=lambda: print("elsewhere"))
        thread.start()
        thread.join()
    assert sink.lines == []


def test_a_stream_keeps_what_programs_ask_of_it() -> None:
    real: Any = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stream = RunStream(real, "stdout")
    stream.writelines(["a", "b"])
    stream.flush()
    assert stream.buffer.getvalue() == b"ab"
    assert stream.encoding == "utf-8"
