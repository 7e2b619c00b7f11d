"""Tests of the checker for chaos runs: a record without a fault, and one for each kind of fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.fleet.checker import Promise, check, measure
from tests.support.fleet.plans import Chance, Fault, Plan, cuts, kills, stops, storms
from tests.support.fleet.records import Attempt, Call, Done, Election, Job, OpenRun, Partition, Record, Run, Tables

T = 1_800_000_000.0
SECONDS = 10
ONE, TWO = 0xA1, 0xB2
change = msgspec.structs.replace


def said(at: float, event: str, **fields: Any) -> str:
    stamp = datetime.fromtimestamp(at, UTC).isoformat()
    return json.dumps({"level": "warning", "event": event, "timestamp": stamp, **fields}) + "\n"


def run(tick: int, token: int = 2, node: int = ONE) -> Run:
    at = T + tick
    result = json.dumps({"body": f"effect {tick}"})
    return Run(1, at, 0, f"run-{tick}", token, node, at + 0.1, at + 0.2, 1, 1, None, None, None, result)


def call(tick: int, token: int = 2, late: float = 0.1) -> Call:
    at = T + tick
    return Call(f"key-{tick}", f"run-{tick}", "job", at, 1, token, "{}", at + late, f"effect {tick}", at + late + 0.1)


def good() -> Record:
    """One job for ten seconds; at the fourth tick node one dies, and its run is called again by node two."""
    ticks = range(1, SECONDS + 1)
    runs = [run(tick, node=ONE if tick < 4 else TWO) for tick in ticks if tick != 4] + [run(4, 4, TWO)]
    again = change(call(4, 4), at=T + 9.5)
    fault = Fault(4.0, "kill", "s1")
    return Record(
        Plan("test", 1, SECONDS, (fault,)),
        5.0,
        T,
        T + 20,
        [Job(1, "id", "job", T, T + 0.2, T + SECONDS + 0.5, T + SECONDS + 0.6)],
        [call(tick) for tick in ticks] + [again],
        Tables(
            [change(each, started_at=T + 9.4) if each.token == 4 else each for each in runs],
            [],
            [Attempt(1, T + 4, 0, 2, ONE, None, T + 9.3, 1, "lost")],
            [Election(0, 1, ONE, 0, T), Election(0, 2, TWO, 0, T + 9.2)],
            [Partition(0, TWO, 2)],
        ),
        [Done(fault, T + 4.2, T + 5)],
        {
            "s1.1": said(T, "joined", node=f"{ONE:016x}"),
            "s2.1": said(T, "joined", node=f"{TWO:016x}") + said(T + 9.2, "node evicted", node=f"{ONE:016x}"),
        },
    )


def with_tables(record: Record, **tables: Any) -> Record:
    return change(record, tables=change(record.tables, **tables))


def also(record: Record, name: str, *items: Any) -> Record:
    return with_tables(record, **{name: [*getattr(record.tables, name), *items]})


def replaced(record: Record, tick: int, **fields: Any) -> Record:
    runs = [change(each, **fields) if each.run_id == f"run-{tick}" else each for each in record.tables.runs]
    return with_tables(record, runs=runs)


def called(record: Record, *calls: Call) -> Record:
    return change(record, calls=[*record.calls, *calls])


def logged(record: Record, process: str, line: str) -> Record:
    return change(record, logs={**record.logs, process: record.logs.get(process, "") + line})


def test_a_record_in_which_all_is_well_is_ok_and_its_figures_are_counted() -> None:
    verdict = check(good(), Promise(latest=6.0, takeovers=1, rescues=1))
    assert (verdict.violations, verdict.untested, verdict.word) == ([], [], "ok")
    figures = measure(good())
    assert (figures.ticks, figures.takeovers, figures.rescues, figures.repeated) == (10, 1, 1, 1)
    assert figures.latest == pytest.approx(0.1)


WRONG: dict[str, tuple[str, Callable[[Record], Record]]] = {
    "a tick without a row": (
        "I1 job: ticks without a row",
        lambda r: with_tables(r, runs=[each for each in r.tables.runs if each.run_id != "run-6"]),
    ),
    "a row without a tick": ("I1 job: rows without a tick", lambda r: also(r, "runs", run(SECONDS + 5))),
    "a tick with two rows": ("I2", lambda r: also(r, "runs", run(3))),
    "a tick that is finished and open": ("I2", lambda r: also(r, "open_runs", OpenRun(1, T + 3, 0, 2, ONE))),
    "a run that is dead": ("I1 1 runs with status 2", lambda r: replaced(r, 3, status=2)),
    "a run that is left open": ("I3", lambda r: also(r, "open_runs", OpenRun(1, T + 3, 0, 2, None))),
    "two runs under one key": ("I4", lambda r: called(r, change(call(3, 9), run_id="run-2", effect=""))),
    "two keys of one run": ("I4", lambda r: called(r, change(call(3, 1), key="key-x"))),
    "two effects of one key": ("I5 two effects", lambda r: called(r, change(call(3, 1), effect="another"))),
    "a run that was never called": ("I5", lambda r: also(change(r, calls=r.calls[1:]), "runs")),
    "another result than the effect": ("I5", lambda r: replaced(r, 3, result=json.dumps({"body": "other"}))),
    "a token that was used twice": ("I6 a token", lambda r: called(r, call(3))),
    "a run that began before it was taken away": ("I6", lambda r: replaced(r, 4, started_at=T + 5)),
    "a settle under an old token": ("I7", lambda r: called(replaced(r, 3, token=2), call(3, 7))),
    "a settle under a token that was lost": ("I7", lambda r: replaced(r, 4, token=1)),
    "a partition taken by an evicted node": ("I8", lambda r: also(r, "elections", Election(1, 3, ONE, 0, T + 12))),
    "a run settled by an evicted node": ("I8", lambda r: replaced(r, 10, node=ONE)),
    "a term that does not rise": ("I9", lambda r: also(r, "elections", Election(0, 2, ONE, 0, T + 9.3))),
    "a partition that is not as elected": ("I9", lambda r: with_tables(r, partitions=[Partition(0, ONE, 2)])),
    "a call before its time": ("I10", lambda r: called(r, change(call(3, 1), at=T + 2.9))),
    "a start that is too late": ("I11", lambda r: change(r, calls=[call(t, late=7.0) for t in range(1, 11)])),
    "a traceback": ("log", lambda r: logged(r, "s1.1", said(T, "pass failed", exception="Traceback (most"))),
    "an error": ("log", lambda r: logged(r, "s1.1", said(T, "odd").replace("warning", "error"))),
    "words out of place": ("log", lambda r: logged(r, "s1.1", "RuntimeWarning: never awaited\n")),
    "a loop that does not wait": ("log", lambda r: logged(r, "s1.1", said(T, "again") * 101)),
    "a deadlock": ("log", lambda r: logged(r, "primary", "ERROR:  deadlock detected\n")),
    "a process that ended": ("s2.1 ended", lambda r: change(r, gone=["s2.1"])),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name: str) -> None:
    rule, spoil = WRONG[name]
    verdict = check(spoil(good()), Promise(latest=6.0))
    assert verdict.word == "violated"
    assert any(line.startswith(rule) for line in verdict.violations), verdict.violations


@pytest.mark.parametrize("promise", [Promise(takeovers=2), Promise(rescues=2), Promise(refused=1), Promise(repeated=2)])
def test_a_run_that_put_nothing_to_the_test_is_not_ok(promise: Promise) -> None:
    assert check(good(), promise).word == "unknown"


def test_a_run_whose_faults_did_not_all_happen_is_not_ok() -> None:
    assert check(change(good(), done=[]), Promise()).word == "unknown"


def test_a_start_counts_from_the_moment_when_the_database_was_back() -> None:
    away = Done(Fault(2.0, "restart-database"), T + 2.5, T + 9)
    late = [call(tick, late=max(0.1, 9.5 - tick)) for tick in range(1, 11)]
    record = change(good(), calls=late, done=[*good().done, away])
    assert measure(record).latest < 2
    assert measure(change(record, done=[])).latest > 6


def test_a_record_outlives_its_file(tmp_path: Path) -> None:
    good().write(tmp_path / "record")
    assert Record.read(tmp_path / "record") == good()


@pytest.mark.parametrize("draw", [kills, stops, cuts, storms])
def test_a_plan_is_drawn_from_its_seed_and_read_back(draw: Any, tmp_path: Path) -> None:
    faults = draw(Chance("test", 7), 90.0, 5.0)
    assert faults == draw(Chance("test", 7), 90.0, 5.0) != draw(Chance("test", 8), 90.0, 5.0)
    plan = Plan("test", 7, 90.0, tuple(faults))
    plan.write(tmp_path / "plan")
    assert Plan.read(tmp_path / "plan") == plan
