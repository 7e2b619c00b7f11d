"""`detent pause --all` and `detent resume --all` against a server that records what it is asked."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.command_line import Finished
from tests.cli.contract_server import ContractServer, good, problem, stamp

Run = Callable[..., Finished]
HELD = {"held": {"at": stamp(0), "by": "this machine", "reason": "the shop moves"}}


def test_everything_is_paused_with_a_reason(inside: Run, server: ContractServer) -> None:
    server.answers.append(good(HELD))
    finished = inside("pause", "--all", "--reason", "the shop moves")
    assert (finished.code, finished.out) == (0, "")
    assert finished.err == "All ticks are paused: `detent resume --all` resumes them.\n"
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/api/v1/cluster/pause")
    assert request.body == {"reason": "the shop moves"}


def test_everything_is_resumed(inside: Run, server: ContractServer) -> None:
    server.answers.append(good({"held": None}))
    finished = inside("resume", "--all", "--json")
    assert finished.code == 0
    assert json.loads(finished.out) == {"held": None}
    assert server.requests[0].path == "/api/v1/cluster/resume"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause", "--reason", "x"), "confirm with --all. `detent job pause JOB` pauses one job"),
        (("pause", "--all"), "--reason is missing"),
        (("resume",), "confirm with --all. `detent job resume JOB` resumes one job"),
    ],
)
def test_what_is_meant_has_to_be_said(
    inside: Run, server: ContractServer, arguments: tuple[str, ...], said: str
) -> None:
    finished = inside(*arguments)
    assert finished.code == 2
    assert said in finished.err
    assert server.requests == []


def test_who_may_not_is_refused_with_the_reason(inside: Run, server: ContractServer) -> None:
    server.answers.append(problem(403, "The cluster is paused with a key of the default tenant."))
    assert inside("pause", "--all", "--reason", "x").code == 4
