"""Structured logs on stderr: pretty on a terminal, JSON lines elsewhere. A logger costs nothing until its first use.

Log lines use the same keys everywhere:

    job          the name of a job
    job_id       its id
    job_number   its number in the database, where name and id are not at hand
    run_id       the id of a run
    attempt, token, node    which attempt, under which claim, on which node
    error, why   what failed, or the reason
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, TextIO

from detent.domain.masking import Mask
from detent.domain.text import visible
from detent.telemetry.capture import mask_in_use, sink_in_use

_level = logging.INFO
_PLAIN = (str, int, float, list, tuple, dict, type(None))
# What detent itself uses: at level info these describe each of their own steps.
_LIBRARIES = (
    *("aiohttp", "asyncio", "asyncpg", "botocore", "httpcore", "httpx", "kazoo", "opentelemetry", "urllib3", "uvicorn"),
)


@contextmanager
def hiding(mask: Mask | None) -> Iterator[None]:
    """Mask the values of a call's secrets in every line that is logged in this block."""
    before = mask_in_use.set(mask)
    try:
        yield
    finally:
        mask_in_use.reset(before)


def debug_enabled() -> bool:
    """Whether debug lines are written: checked where building one is expensive."""
    return _level <= logging.DEBUG


def logger(part: str) -> Any:
    """A lazy structlog logger, bound to a part of the program."""
    import structlog

    return structlog.get_logger(part=part)


def configure(log_format: str, level: str) -> None:
    import structlog

    global _level
    _level = getattr(logging, level.upper())
    pretty = log_format == "pretty" or (log_format == "auto" and sys.stderr.isatty())
    renderer: Any = (
        # Plain tracebacks: the rich ones show the values of variables, and some of those are secrets.
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_plain_traceback)
        if pretty
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _hide,
            _spell_out if pretty else structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    _forward_logging(getattr(logging, level.upper()))


def defer_to_host() -> None:
    """In a process of another program: hand lines on to Python's `logging`, as `detent.PART`, so that this program
    decides what happens with them. If it has configured structlog, they go there."""
    import structlog

    of_runs = logging.getLogger("detent.run")
    if of_runs.level == logging.NOTSET:
        of_runs.setLevel(logging.INFO)  # what `run.log` says from there on is kept with the run
    if not structlog.is_configured():
        structlog.configure(
            processors=[structlog.contextvars.merge_contextvars, _hide, _to_logging],
            wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
            cache_logger_on_first_use=False,  # that program may still configure structlog
        )


def _to_logging(_: object, method: str, event: MutableMapping[str, Any]) -> Any:
    import structlog

    level = logging.ERROR if method == "exception" else logging.getLevelNamesMapping()[method.upper()]
    chosen = logging.getLogger(f"detent.{event.pop('part', 'node')}")
    if chosen.isEnabledFor(level):
        said, trace = event.pop("event"), event.pop("exc_info", None)
        fields = "".join(f" {key}={value!r}" for key, value in event.items())
        chosen.log(level, "%s%s", visible(str(said)), fields, exc_info=trace)
    raise structlog.DropEvent


def _hide(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A traceback is made text here where it may show a secret: an exception's own text cannot be changed."""
    mask = mask_in_use.get()
    if mask is None:
        return event
    import structlog

    event = structlog.processors.format_exc_info(logger, method, event) if event.get("exc_info") else event
    return {key: mask.document(value if isinstance(value, _PLAIN) else str(value)) for key, value in event.items()}


def _spell_out(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """No name or error of a job may write to the terminal on which the log is read, or forge a second line."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[key] = visible(value) if key == "exception" else visible(value, "")
    return event


def _plain_traceback(written: TextIO, exc_info: Any) -> None:
    import structlog

    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    written.write(visible(text.getvalue()))


class _Forward(logging.Handler):
    """Hands what handlers (`run.log`, and loggers of their own) and libraries log through `logging` to the run that
    they log for, and to this log in the same format."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self.least = level

    def handle(self, record: logging.LogRecord) -> bool:
        """Without the lock of the base class, which all threads that log would take turns for."""
        sink = sink_in_use.get()
        try:
            is_ours = sink is None or sink.logged(record)
        except Exception:  # a record that cannot be formatted must not fail the code that logs it
            self.handleError(record)
            return True
        if is_ours and record.levelno >= self.least:
            self._write(record, sink.facts if sink is not None else {})
        return True

    def _write(self, record: logging.LogRecord, facts: Mapping[str, object]) -> None:
        fields: dict[str, Any] = {
            name: getattr(record, name) for name in ("run_id", "attempt") if hasattr(record, name)
        } | dict(facts)
        if record.exc_info and record.exc_info[1] is not None:
            # The driver's pool logs a whole traceback at every failed connection: the message is enough.
            short = record.name.startswith("asyncpg")
            fields |= {"error": str(record.exc_info[1])} if short else {"exc_info": record.exc_info}
        try:
            logger(record.name).log(record.levelno, record.getMessage(), **fields)
        except Exception:
            self.handleError(record)


def _forward_logging(level: int) -> None:
    """Records from level info on reach the runs that they belong to, whatever is logged here."""
    logging.basicConfig(level=logging.INFO, handlers=[_Forward(level)], force=True)
    logging.getLogger("detent.run").setLevel(min(level, logging.INFO))
    for name in _LIBRARIES:
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.WARNING)


class _ForRuns(_Forward):
    """Only hands lines to the runs that they belong to. It is no handler of the program whose process this is: without
    any, `logging` writes warnings to stderr, and still does."""

    def __init__(self) -> None:
        super().__init__(logging.CRITICAL + 1)

    def handle(self, record: logging.LogRecord) -> bool:
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and logging.root.handlers == [self]:
            last.handle(record)
        return super().handle(record)


@contextmanager
def captured_logging() -> Iterator[None]:
    """Open this once the app of the user is loaded. If the app has configured `logging`, its own handlers write its
    log, and runs get the lines that pass the level that it chose. Otherwise runs get lines from INFO on, as in a
    process of detent."""
    root = logging.getLogger()
    if any(isinstance(handler, _Forward) for handler in root.handlers):
        yield
        return
    added, before = _ForRuns(), root.level
    lowered = not root.handlers and before > logging.INFO
    root.addHandler(added)
    if lowered:
        root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(added)
        if lowered and root.level == logging.INFO:  # else it was configured meanwhile
            root.setLevel(before)
