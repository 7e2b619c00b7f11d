"""Every transition of a run is in the log, found by the run's id; and it costs nothing while debug logging is off."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.jobs import JobOperations
from detent.store import Store
from detent.telemetry import log as logs
from detent.telemetry import transitions
from detent.telemetry.metrics import Metrics
from tests.support.sessions import StartSession
from tests.support.waiting import until

SPEAK = (
    "from detent.telemetry.log import configure, logger; configure({!r}, {!r}); "
    "log = logger('a'); log.{}('said', run_id='r-1')"
)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What is logged, from debug on."""
    monkeypatch.setattr(logs, "_level", 10)
    with structlog.testing.capture_logs() as captured:
        yield captured


async def fails_first(call: Call) -> Outcome:
    if "dead" in call.job or (call.attempt == 1 and "again" in call.job):
        return Failed("broken")
    return Succeeded()


async def add(store: Store, name: str, **fields: Any) -> None:
    spec = JobSpec(schedule="every 1s", target=HttpTarget(url="http://127.0.0.1:9/"), name=name, max_runs=1, **fields)
    await JobOperations(store).registration.add([spec])


def of_run(lines: list[Any], last: str) -> list[Any]:
    """The lines of the run that a line of this event is about."""
    run = next((line["run_id"] for line in lines if line["event"] == last), None)
    return [line for line in lines if line.get("run_id") == run] if run else []


async def test_a_run_is_reported_from_its_fire_to_its_end(store: Store, start: StartSession, lines: list[Any]) -> None:
    session = await start(fails_first)
    await add(store, "again", retry_base_seconds=0)
    await until(lambda: of_run(lines, "run succeeded"), 10, "the run to succeed")
    story = of_run(lines, "run succeeded")
    assert [(line["event"], line["log_level"], line["attempt"]) for line in story] == [
        ("run fired", "debug", 1),
        ("run claimed", "debug", 1),
        ("run started", "debug", 1),
        ("attempt failed, retry follows", "info", 1),
        ("run claimed", "debug", 2),
        ("run started", "debug", 2),
        ("run succeeded", "debug", 2),
    ]
    tokens = [line["token"] for line in story]
    assert tokens == sorted(tokens) and tokens[0] < tokens[-1]
    assert {line["node"] for line in story} == {f"{session.membership.node:016x}"}
    assert len({line["job_number"] for line in story}) == 1
    assert story[2]["job"] == "again"


async def test_a_dead_run_is_a_warning_with_its_error(store: Store, start: StartSession, lines: list[Any]) -> None:
    await start(fails_first)
    await add(store, "dead", max_retries=0)
    await until(lambda: of_run(lines, "run dead"), 10, "the run to die")
    dead = of_run(lines, "run dead")[-1]
    assert (dead["log_level"], dead["outcome"], dead["error"], dead["attempt"]) == ("warning", "failed", "broken", 1)


async def test_a_skipped_tick_is_reported_with_the_id_its_run_would_have_had(
    store: Store, start: StartSession, lines: list[Any]
) -> None:
    async def slow(_call: Call) -> Outcome:
        await until(lambda: any(line["event"] == "tick skipped" for line in lines), 10)
        return Succeeded()

    await start(slow)
    await JobOperations(store).registration.add(
        [JobSpec(schedule="every 1s", target=HttpTarget(url="http://127.0.0.1:9/"))]
    )
    await until(lambda: any(line["event"] == "run succeeded" for line in lines), 15, "a run to succeed")
    skipped = next(line for line in lines if line["event"] == "tick skipped")
    assert skipped["why"] == "overlap"
    assert skipped["run_id"] not in {line["run_id"] for line in lines if line["event"] == "run fired"}


async def test_what_every_run_goes_through_is_not_even_made_while_that_no_node_reads_it(
    store: Store, start: StartSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> dict[str, Any]:
        raise AssertionError("formatted although debug logging is off")

    monkeypatch.setattr(transitions, "facts_of", refuse)
    metrics = Metrics()
    await start(fails_first, metrics=metrics)
    await add(store, "quiet")
    await until(lambda: sum(metrics.ends.values()) == 1, 10, "the run to end")


def test_of_very_many_some_stand_for_the_rest(lines: list[Any]) -> None:
    transitions.log_some("warning", "run dead", [{"run_id": str(number)} for number in range(1000)])
    assert len(lines) == transitions.MAX_LINES + 1
    assert lines[-1]["others"] == 1000 - transitions.MAX_LINES


@pytest.mark.parametrize(
    ("form", "level", "method", "shape"),
    [("auto", "debug", "debug", "json"), ("pretty", "info", "info", "text"), ("json", "info", "debug", "nothing")],
)
def test_lines_are_json_where_no_terminal_is_and_below_the_level_there_are_none(
    form: str, level: str, method: str, shape: str
) -> None:
    command = [sys.executable, "-c", SPEAK.format(form, level, method)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    if shape == "json":
        line = json.loads(done.stderr)
        assert (line["event"], line["run_id"], line["level"], line["part"]) == ("said", "r-1", method, "a")
        assert line["timestamp"].endswith("Z")
    elif shape == "text":
        assert "said" in done.stderr and "run_id=r-1" in done.stderr and not done.stderr.startswith("{")
    else:
        assert done.stderr == ""
