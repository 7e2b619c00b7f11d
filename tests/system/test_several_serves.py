"""Several `detent serve` on one machine: a cluster with nothing else than a common database, looked at from outside."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes import Node, Nodes, command_line, environment
from tests.support.sink import Sink, http_target
from tests.support.waiting import until

METRICS = re.compile(r"^metrics on (http://\S+)/metrics$", re.MULTILINE)


@pytest.fixture
def default_port() -> Iterator[int]:
    """8787, or what listens there already, for as long as the test runs."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8787))
            taken.listen(1)
        except OSError:
            pass  # another process has it, which is fine
        yield 8787


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics(url: str) -> dict[str, float]:
    status, text = get(f"{url}/metrics")
    assert status == 200
    found: dict[str, float] = defaultdict(float)  # added up over labels
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] += sample.value
    return dict(found)


def begin_unasked(nodes: Nodes, *arguments: str) -> Node:
    """`detent serve` without --port."""
    environ = environment(nodes.folder, **nodes.variables)
    node = Node(nodes.folder, f"serve-{len(nodes.started) + 1}", ["serve", *arguments], environ)
    nodes.started.append(node)
    return node


async def test_serves_on_one_data_folder_share_the_work_and_take_the_next_ports(
    nodes: Nodes, default_port: int, folder: Path
) -> None:
    first = await begin_unasked(nodes).ready()
    second = await begin_unasked(nodes).ready()
    ports = [int(node.url.rpartition(":")[2]) for node in (first, second)]
    assert default_port < ports[0] < ports[1]
    for node, port in zip((first, second), ports, strict=True):
        assert f"port {default_port} is in use, listening on {port}\n" in node.text
    await until(lambda: all(n["partitions"] > 50 for n in first.client.get_cluster()["nodes"]), 20)
    cluster = second.client.get_cluster()
    assert sorted(node["address"] for node in cluster["nodes"]) == sorted((first.url, second.url))
    assert cluster["problems"] == []
    code, out, _ = await command_line(folder, first.url, "top", "--once")
    assert code == 0
    assert "● healthy   nodes: 2 alive" in out and "partitions  256 of 256 have a leader" in out
    assert set("".join(line for line in out.splitlines() if re.fullmatch("[AB]{64}", line))) == {"A", "B"}


async def test_a_node_is_drained_while_it_runs_and_brought_back(cluster: Nodes, sink: Sink, folder: Path) -> None:
    first, second = await cluster.start("serve"), await cluster.start("serve")
    target = http_target(sink, "hang")
    first.client.create_job({"name": "long", "schedule": {"every": "1h"}, "target": target})
    first.client.trigger_job("long")
    await until(lambda: len(sink.calls) == 1)
    (runs,) = [node for node in first.client.get_cluster()["nodes"] if node["running"]]
    busy, other = (first, second) if runs["id"] == first.identities[0] else (second, first)
    begun = asyncio.create_task(command_line(folder, other.url, "node", "drain", runs["id"][:6], "--yes", "--wait"))
    await until(lambda: get(f"{busy.url}/readyz")[0] == 503)
    assert json.loads(get(f"{busy.url}/readyz")[1])["status"] == "draining"
    assert get(f"{other.url}/readyz")[0] == get(f"{busy.url}/livez")[0] == 200
    await until(lambda: other.client.get_cluster()["partitions"][0]["node"] == other.identities[0])
    assert not begun.done()
    sink.release()
    code, _, said = await begun
    assert (code, said) == (0, f"Node {runs['id'][:8]} is drained: it leads nothing and runs nothing.\n")
    code, _, said = await command_line(folder, other.url, "node", "drain", runs["id"][:6], "--undo")
    assert (code, said) == (0, f"Node {runs['id'][:8]} takes part again.\n")
    await until(lambda: get(f"{busy.url}/readyz")[0] == 200)
    await until(lambda: len({p["node"] for p in other.client.get_cluster()["partitions"]}) == 2)


async def test_a_process_without_an_api_answers_probes_on_a_port_of_its_own(cluster: Nodes, look: Any) -> None:
    started = [await cluster.start(role, "--metrics-port", "0") for role in ("scheduler", "worker")]
    for node in started:
        found = METRICS.search(node.text)
        assert found is not None, node.text
        url = found[1]
        await until(lambda url=url: get(f"{url}/readyz")[0] == 200)
        checks = json.loads(get(f"{url}/readyz?verbose")[1])["checks"]
        assert checks["member"]["ok"] and checks["heartbeat"]["ok"]
        assert get(f"{url}/livez") == (200, '{"status":"ok"}')
        assert get(f"{url}/api/v1/cluster")[0] == get(f"{url}/version")[0] == 404
        schedules = node.name.startswith("scheduler")
        await until(lambda url=url, schedules=schedules: metrics(url)["detent_leader_status"] == schedules)
        counted = metrics(url)
        assert counted["detent_partitions_led"] == counted["detent_elections_total"] == (256 if schedules else 0)
        assert counted["detent_lease_remaining_seconds"] > 0


async def test_what_a_node_does_is_counted(cluster: Nodes, sink: Sink) -> None:
    node = await cluster.start("serve")
    node.client.create_job({"name": "short", "schedule": {"every": "1h"}, "target": http_target(sink, "ok")})
    node.client.trigger_job("short")
    await until(lambda: metrics(node.url)["detent_run_duration_seconds_count"] == 1)
    counted = metrics(node.url)
    assert (counted["detent_starts_total"], counted["detent_start_lateness_seconds_count"]) == (1, 1)


async def test_a_killed_nodes_runs_are_counted_as_rescued(cluster: Nodes, sink: Sink) -> None:
    first = await cluster.start("serve")
    first.client.create_job({"name": "long", "schedule": {"every": "1h"}, "target": http_target(sink, "hang")})
    first.client.trigger_job("long")
    await until(lambda: len(sink.calls) == 1)
    second = await cluster.start("serve")
    await first.kill()
    await until(lambda: metrics(second.url)["detent_rescued_runs_total"] == 1, 20)
    assert metrics(second.url)["detent_evictions_total"] == 1
    sink.release()
