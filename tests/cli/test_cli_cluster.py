"""`detent node …` and `detent top` against a server whose cluster the test makes up."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from detent.cli.top_view import TopView
from tests.cli.command_line import CommandLine, Finished
from tests.cli.contract_server import ContractServer, good, problem, stamp

A, B, C = "3f9a000000000001", "3f9b000000000002", "11aa000000000003"
Run = Callable[..., Finished]


def node(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "state": "alive",
        "roles": ["api", "scheduler", "worker"],
        "host": "atlas",
        "pid": 1,
        "address": "http://atlas:8787",
        "started_at": stamp(-90),
        "heartbeat_age_ms": 400,
        "lease_ms": 4600,
        "clock_offset_ms": 1.2,
        "version": "1.0",
        "tzdata": "2026a",
        "partitions": 128,
        "running": 2,
        **fields,
    }


def cluster(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """`nodes` lead in turn."""
    owners = [one["id"] for one in nodes] or [None]
    partitions = [
        {"partition": n, "node": owners[n % len(owners)], "term": 1, "age_ms": 5} for n in range(256)
    ]  # fmt: skip
    return {
        "nodes": list(nodes),
        "partitions": partitions,
        "elections": {
            "last_hour": 256,
            "flapping": [],
            "recent": [{"at": stamp(-30), "node": one["id"], "partitions": 128} for one in nodes],
        },
        "held": None,
        "lag": {"oldest_due_ms": None, "oldest_ready_ms": None},
        "throughput": {"last_10s": 120, "last_60s": 900},
        "problems": [],
        **fields,
    }


# --- detent node ---


def test_what_is_wrong_is_said_below_the_nodes(inside: Run, server: ContractServer) -> None:
    server.answers.append(good(cluster(node(A), problems=["Something is wrong."])))
    done = inside("node", "list")
    assert done.rows[0][:2] == [A, "alive"]
    assert done.err == "warning: Something is wrong.\n"


def test_who_leads_each_partition_under_which_term_and_how_long(inside: Run, server: ContractServer) -> None:
    answer = cluster(node(A), node(B))
    answer["partitions"][1] |= {"node": None, "term": 0, "age_ms": None}
    server.answers.append(good(answer))
    rows = inside("node", "list", "--partitions").rows
    assert len(rows) == 256
    assert rows[0] == ["0", A, "1", "5"]
    assert rows[1][:2] == ["1", ""]


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ("3f9", 2, f"'3f9' matches 2 nodes: {A}, {B}. Give a longer prefix."),
        ("ffff", 3, "There is no node 'ffff'"),
        ("11", 2, "`detent node drain 11aa0000 --yes`"),
    ],
)
def test_a_node_that_is_not_distinguished_from_others_is_not_drained(
    inside: Run, server: ContractServer, given: str, code: int, said: str
) -> None:
    server.answers.append(good(cluster(node(A), node(B), node(C))))
    done = inside("node", "drain", given)
    assert done.code == code and said in done.err
    assert [request.method for request in server.requests] == ["GET"]


def test_a_node_is_drained_by_the_beginning_of_its_id(inside: Run, server: ContractServer) -> None:
    server.answers += [good(cluster(node(A), node(B))), good(node(B, state="draining"))]
    done = inside("node", "drain", "3F9B", "--yes")
    assert (done.code, done.out) == (0, "")
    assert done.err == "Node 3f9b0000 is draining: `detent node drain 3f9b0000 --undo` withdraws the drain.\n"
    assert server.requests[1].path == f"/api/v1/cluster/nodes/{B}/drain"


def test_a_node_that_is_gone_is_meant_only_where_no_other_is(inside: Run, server: ContractServer) -> None:
    server.answers += [good(cluster(node(A, state="evicted"), node(B))), good(node(B, state="draining"))]
    assert inside("node", "drain", "3f", "--yes", "-q").out == f"{B}\n"


def test_bringing_back_asks_nothing(inside: Run, server: ContractServer) -> None:
    server.answers += [good(cluster(node(A, state="draining"))), good(node(A))]
    done = inside("node", "drain", "3f9a", "--undo", "--json")
    assert json.loads(done.out)["state"] == "alive"
    assert done.err == "Node 3f9a0000 takes part again.\n"
    assert server.requests[1].path == f"/api/v1/cluster/nodes/{A}/resume"


def test_the_end_of_draining_is_waited_for(inside: Run, server: ContractServer) -> None:
    running = node(A, state="draining", partitions=0, running=1)
    server.answers += [good(cluster(node(A), node(B))), good(running)]
    server.answers += [good(cluster(running, node(B))), good(cluster({**running, "running": 0}, node(B)))]
    done = inside("node", "drain", A, "--yes", "--wait")
    assert (done.code, done.err) == (0, "Node 3f9a0000 is drained: it leads nothing and runs nothing.\n")


def test_a_wait_has_an_end(inside: Run, server: ContractServer) -> None:
    running = node(A, state="draining", partitions=0, running=1)
    server.answers += [good(cluster(node(A), node(B))), good(running), good(cluster(running, node(B)))]
    done = inside("node", "drain", A, "--yes", "--wait", "--timeout", "0.1s")
    assert done.code == 124 and "still leads 0 partitions and has 1 run after 0.1 s" in done.err


def test_another_client_may_bring_it_back_meanwhile(inside: Run, server: ContractServer) -> None:
    server.answers += [good(cluster(node(A), node(B))), good(node(A, state="draining")), good(cluster(node(A)))]
    assert inside("node", "drain", A, "--yes", "--wait").code == 6


@pytest.mark.parametrize("flags", [("--undo", "--wait"), ("--timeout", "5s")])
def test_flags_that_do_not_go_together_are_refused(inside: Run, flags: tuple[str, ...]) -> None:
    assert inside("node", "drain", A, *flags).code == 2


def test_who_may_not_is_reported(inside: Run, server: ContractServer) -> None:
    server.answers += [good(cluster(node(A), node(B))), problem(403, "Nodes are looked after with another key.")]
    done = inside("node", "drain", A, "--yes")
    assert (done.code, done.err) == (4, "error: Nodes are looked after with another key.\n")


def test_the_operator_is_asked_and_shown_the_consequences(detent: CommandLine, server: ContractServer) -> None:
    server.answers.append(good(cluster(node(A), node(B, roles=["api"]))))
    seen = detent.on_terminal("node", "drain", "3f9a", typed="n\n", width=200)
    assert "Drain node 3f9a0000 on atlas, which leads 128 partitions and has 2 runs?" in seen.out
    assert "There is no other scheduler: no tick will fire. There is no other worker: runs will wait." in seen.out
    assert seen.code == 1 and "Nothing was changed." in seen.out


# --- detent top ---


def drawn(document: dict[str, Any], width: int = 80, height: int = 24, frames: int = 1, trouble: str = "") -> list[str]:
    view = TopView("http://server", "")
    for _ in range(frames):
        view.sample(document)
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(view.frame(document, datetime.now(UTC), width, height, trouble))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_frame_shows_nodes_partitions_and_work() -> None:
    lines = drawn(cluster(node(A), node(B)), frames=5)
    text = "\n".join(lines)
    assert lines[0].startswith("detent at http://server")
    assert lines[1] == "● healthy   nodes: 2 alive"
    assert "A  3f9a0000  alive  all      128     2     400 ms" in text
    assert lines.count("AB" * 32) == 4
    assert "lag         no tick is overdue, no run waits" in lines
    assert "finished    12.0/s over 10 s, 15.0/s over 60 s █████" in lines
    assert "  30 s ago  B 3f9b0000 took 128 partitions" in text
    assert max(map(len, lines)) <= 80 and len(lines) <= 24


@pytest.mark.parametrize(("width", "columns"), [(40, 32), (80, 64), (130, 128)])
def test_the_map_has_all_partitions_at_any_width(width: int, columns: int) -> None:
    lines = drawn(cluster(node(A)), width=width)
    assert lines.count("A" * columns) == 256 // columns


def test_problems_are_said_and_partitions_without_a_leader_stand_out() -> None:
    document = cluster(node(A), problems=["Partition 3 has no leader.", "\x1b[31mred"])
    document["partitions"][3]["node"] = None
    lines = drawn(document, trouble="No detent server answers.")
    assert lines[1:5] == [
        "No detent server answers.",
        "● 2 problems   nodes: 1 alive",
        "▲ Partition 3 has no leader.",
        r"▲ \x1b[31mred",
    ]
    assert "partitions  255 of 256 have a leader" in lines
    assert f"AAA·{'A' * 60}" in lines


def test_a_cluster_without_nodes_can_be_watched() -> None:
    lines = drawn(cluster(problems=["No node is alive."]))
    assert lines[1] == "● 1 problem   nodes: none"
    assert lines.count("·" * 64) == 4


def test_who_is_reported_less_sees_less() -> None:
    told = cluster(node(A, host=None, pid=None, address=None, running=None), throughput=None)
    lines = drawn(told)
    assert not any("RUNS" in line or "HOST" in line or "finished" in line for line in lines)


def test_many_nodes_leave_room_for_the_rest() -> None:
    nodes = [node(f"{n:016x}", partitions=1) for n in range(60)]
    lines = drawn(cluster(*nodes), height=30)
    assert len(lines) <= 30
    assert any("more nodes: `detent node list` shows all" in line for line in lines)
    assert sum("took" in line for line in lines) >= 1


def test_a_letter_stays_a_nodes_own_when_others_leave() -> None:
    view = TopView("", "")
    view.sample(cluster(node(A), node(B)))
    view.sample(cluster(node(B), node(C)))
    assert view.letters == {B: "B", C: "A"}


def test_one_frame_is_printed_into_a_pipe(inside: Run, server: ContractServer) -> None:
    server.answers.append(good(cluster(node(A))))
    done = inside("top")
    assert done.code == 0 and "● healthy   nodes: 1 alive" in done.lines and "\x1b" not in done.out


def test_a_machine_gets_the_apis_json(inside: Run, server: ContractServer) -> None:
    server.answers.append(good(cluster(node(A))))
    assert json.loads(inside("top", "--json").out)["nodes"][0]["id"] == A


@pytest.mark.parametrize("keys", ["q", "x Q"])
def test_the_view_ends_when_it_is_reported_to(detent: CommandLine, server: ContractServer, keys: str) -> None:
    server.answers += [good(cluster(node(A)))] * 5
    seen = detent.on_terminal("top", "--interval", "60", typed=keys, width=80)
    assert seen.code == 0
    assert "every 60 s, q quits" in seen.out and "Traceback" not in seen.out


def test_a_server_that_goes_away_is_reported_and_the_last_frame_stays(
    detent: CommandLine, server: ContractServer
) -> None:
    server.answers += [good(cluster(node(A))), problem(503, "Not now."), good(cluster(node(A)))]
    seen = detent.on_terminal("top", "--interval", "60", typed="xxq", width=80)
    assert seen.code == 0 and "Not now." in seen.out


@pytest.mark.parametrize("interval", ["0", "0.1s", "soon"])
def test_an_invalid_interval_is_refused(inside: Run, interval: str) -> None:
    done = inside("top", "--interval", interval)
    assert done.code == 2 and interval in done.err
