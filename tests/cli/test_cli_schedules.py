"""Schedules of several parts on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.command_line import CommandLine, Finished
from tests.cli.contract_server import ContractServer

Run = Callable[..., Finished]
URL = ("--url", "http://127.0.0.1:9/")


@pytest.mark.parametrize(
    ("flags", "schedule"),
    [
        (
            ("--cron", "0 9 * * *", "--also", "every 6h", "--also", "@weekly", "--exclude", "2030-12-24"),
            {"cron": "0 9 * * *", "also": ["every 6h", "@weekly"], "exclude": ["2030-12-24"]},
        ),
        (("--every", "10m", "--after", "finish"), {"every": "10m", "after": "finish"}),
        (("--schedule", "every 6h", "--exclude", "* * * * SAT"), {"every": "6h", "exclude": ["* * * * SAT"]}),
        (("--schedule", "@daily", "--exclude", "2030-12-24"), {"cron": "@daily", "exclude": ["2030-12-24"]}),
        (
            ("--schedule", "rate(1 hour)", "--dialect", "aws", "--exclude", "2030-12-24"),
            {"cron": "rate(1 hour)", "exclude": ["2030-12-24"]},
        ),
        (("--rrule", "FREQ=DAILY", "--also", "@hourly"), {"rrule": "FREQ=DAILY", "also": ["@hourly"]}),
    ],
)
def test_parts_of_a_schedule_reach_the_server(
    inside: Run, server: ContractServer, flags: tuple[str, ...], schedule: dict[str, Any]
) -> None:
    assert inside("job", "create", "hello", *flags, *URL).code == 0
    assert server.requests[-1].body["schedule"] == schedule


@pytest.mark.parametrize("flags", [("--also", "@daily"), ("--exclude", "2030-12-24"), ("--task", "--after", "finish")])
def test_a_part_without_a_schedule_is_refused(inside: Run, server: ContractServer, flags: tuple[str, ...]) -> None:
    done = inside("job", "create", "hello", *flags, *URL)
    assert (done.code, "is given without a schedule" in done.err) == (2, True)
    assert not [request for request in server.requests if request.body]


def test_a_delay_after_the_end_goes_with_an_interval_only(inside: Run, server: ContractServer) -> None:
    for schedule in (("--cron", "* * * * *"), ("--schedule", "@daily")):
        done = inside("job", "create", "hello", *schedule, "--after", "finish", *URL)
        assert (done.code, done.err[:46]) == (2, "error: --after is given without --every: it co")
    assert inside("job", "create", "hello", "--schedule", "every 10m", "--after", "finish", *URL).code == 0
    assert server.requests[-1].body["schedule"] == {"every": "10m", "after": "finish"}


def test_a_schedule_without_further_ticks_is_no_empty_table(detent: CommandLine) -> None:
    seen = detent.on_terminal("cron", "explain", "2020-01-01T00:00:00Z")
    assert "This schedule has no further tick." in seen.out and "LOCAL TIME" not in seen.out


def test_a_schedule_of_several_parts_is_explained_without_a_server(inside: Run) -> None:
    done = inside(
        "cron", "explain", "0 9 * * MON-FRI", "--also", "0 11 * * SAT", "--exclude", "2030-12-24/2031-01-01",
        "--from", "2030-12-21T00:00:00Z", "--next", "4", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert [tick["at"][:10] for tick in answer["ticks"]] == ["2030-12-21", "2030-12-23", "2031-01-02", "2031-01-03"]
    assert answer["description"].endswith("; and at 11:00 on Saturday; except from 2030-12-24 to 2031-01-01")
    assert answer["skipped"][0]["why"] == "excluded by '2030-12-24/2031-01-01'"


def test_exclusions_that_leave_no_tick_end_with_code_two(inside: Run) -> None:
    done = inside("cron", "explain", "@daily", "--exclude", "* * * * MON-FRI", "--exclude", "* * * * SAT,SUN")
    assert (done.code, "All ticks of the schedule are excluded" in done.err) == (2, True)


def test_forms_of_eventbridge_have_parts_in_their_own_dialect(inside: Run) -> None:
    command = ("cron", "explain", "cron(0 9 ? * * *)", "--also", "rate(12 hours)", "--exclude", "cron(* * ? * SAT *)")
    done = inside(*command, "--dialect", "aws", "--from", "2030-12-20T12:00:00Z", "--next", "4", "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert [tick["at"][5:13] for tick in answer["ticks"]] == ["12-22T00", "12-22T09", "12-22T12", "12-23T00"]
    assert "except on Saturday" in answer["description"]
    refused = inside(*command)
    assert (refused.code, "set dialect to 'aws'" in refused.err) == (2, True)
