"""`detent node list`, `detent node drain` and `detent node dismiss`"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import click

from detent.cli import output, times
from detent.cli.base import command, group, option
from detent.cli.failures import TimedOut
from detent.cli.invocation import api_options, complete_node, connect, invocation
from detent.cli.output import Column, Item
from detent.cli.watch import watch as watching
from detent.cli.watch import watch_option
from detent.domain.counts import plural
from detent.domain.identity import token_text
from detent.errors import Conflict, NotFound, UsageError

if TYPE_CHECKING:
    from detent.client import JsonClient

node = group("node", "List and drain the nodes of the cluster.", panel="Administration")

SHORT = 8  # letters of an id that are shown; any unique prefix is accepted
POLL_SECONDS = 0.5

NODE_COLUMNS = (
    Column("NODE", lambda node: node["id"], lambda node, at: node["id"][:SHORT]),
    Column("STATE", lambda node: node["state"], status=True),
    Column("HOST", lambda node: node["host"], extra=True),
    Column("ROLES", lambda node: ", ".join(node["roles"])),
    Column("LEADS", lambda node: node["partitions"], right=True),
    Column("RUNS", lambda node: node["running"], extra=True, right=True),
    Column(
        "HEARTBEAT",
        lambda node: node["heartbeat_age_ms"],
        lambda node, at: f"{times.span(node['heartbeat_age_ms'])} ago",
    ),
    Column("CLOCK", lambda node: node["clock_offset_ms"], lambda node, at: offset(node), extra=True, right=True),
    Column("STARTED", lambda node: node["started_at"], lambda node, at: times.relative(node["started_at"], at)),
    Column("API", lambda node: node["address"], extra=True),
    Column("VERSION", lambda node: node["version"], extra=True),
    Column("ZONE DATA", lambda node: node["tzdata"], extra=True),
)
PARTITION_COLUMNS = (
    Column("PARTITION", lambda part: part["partition"], right=True),
    Column("NODE", lambda part: part["node"], lambda part, at: (part["node"] or "none")[:SHORT]),
    Column("TERM", lambda part: part["term"], lambda part, at: token_text(part["term"]), right=True),
    Column(
        "FOR",
        lambda part: part["age_ms"],
        lambda part, at: "" if part["age_ms"] is None else times.span(part["age_ms"]),
        right=True,
    ),
)
FORMER_COLUMNS = (
    Column("NODE", lambda node: node["id"], lambda node, at: node["id"][:SHORT]),
    Column("STATE", lambda node: node["state"], status=True),
    Column("HOST", lambda node: node["host"], extra=True),
    Column("ROLES", lambda node: ", ".join(node["roles"])),
    Column("LED", lambda node: node["partitions"], right=True),
    Column("LAST SEEN", lambda node: node["last_seen_at"], lambda node, at: times.relative(node["last_seen_at"], at)),
    Column("TAKEN OVER BY", lambda node: taken_over(node)),
    Column("BACK AS", lambda node: node["back_as"], lambda node, at: (node["back_as"] or "")[:SHORT], extra=True),
)
NO_NODES = "No node is alive: start one with `detent serve`."


def taken_over(node: Item) -> str:
    """`3f9a0b1c: 128 partitions, 12 runs`"""
    parts = []
    for taker in node["taken_over_by"]:
        held = [(taker["partitions"], "partition"), (taker["runs"] or 0, "run")]
        counts = ", ".join(plural(count, noun) for count, noun in held if count)
        parts.append(f"{taker['node'][:SHORT]}: {counts}")
    return "; ".join(parts)


def offset(node: Item) -> str:
    """The offset of its clock; below a millisecond it is the response time of the database."""
    return f"{node['clock_offset_ms']:+.0f} ms"


@command(node, "list", examples=("detent node list", "detent node list --all", "detent node list --partitions"))
@option("--all", "former", is_flag=True, help="Also list the nodes that left or were lost within the last day.")
@option("--partitions", is_flag=True, help="List the partitions instead: the leader of each, its term, and since when.")
@watch_option
@api_options(quiet="ids only")
def list_nodes(former: bool, partitions: bool, watch: bool) -> None:
    """List the nodes, what each leads and runs, and the cluster's problems."""
    if former and (partitions or watch):
        raise UsageError("--all cannot be combined with --partitions or --watch: give only one of them.")
    part, columns = ("partitions", PARTITION_COLUMNS) if partitions else ("nodes", NODE_COLUMNS)
    with connect() as client:

        def page(limit: int) -> Item:
            return {"items": client.get_cluster()[part][:limit], "next_cursor": None}

        if watch:
            watching(page, 500, columns, NO_NODES)
            return
        answer = client.get_cluster()
    if invocation().format == "json":
        output.print_json(answer)
        return
    output.print_page({"items": answer[part], "next_cursor": None}, columns, NO_NODES)
    if former and answer["former_nodes"]:
        output.print_page({"items": answer["former_nodes"], "next_cursor": None}, FORMER_COLUMNS, "")
    if invocation().format == "text" and answer["nodes"]:
        for problem in answer["problems"]:
            output.say(f"warning: {problem}")


@command(
    node,
    "drain",
    examples=("detent node drain 3f9a --wait", "detent node drain 3f9a --undo"),
)
@click.argument("node_id", metavar="NODE", shell_complete=complete_node)
@option("--undo", is_flag=True, help="Withdraw the drain.")
@option("--wait", is_flag=True, help="Wait until it leads nothing and runs nothing.")
@option("--timeout", metavar="TIME", help="With --wait: stop waiting after this time, with exit code 124.")
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options(quiet="the node's id only")
def drain(node_id: str, undo: bool, wait: bool, timeout: str | None, yes: bool) -> int:
    """Take a node out of service.

    Within a second it hands over what it leads and releases the runs that it
    has not started. It finishes what it runs, and answers 503 to /readyz. The
    process keeps running until it is stopped; after a restart the node takes
    part again. NODE may be any unique prefix of the id.
    """
    if undo and wait:
        raise UsageError("--undo and --wait are both given: give one of the two.")
    if timeout and not wait:
        raise UsageError("--timeout is given without --wait: it limits the wait.")
    limit = times.read_duration("--timeout", timeout) if timeout else None
    with connect() as client:
        nodes = client.get_cluster()["nodes"]
        chosen = find(nodes, node_id)
        if not undo and chosen["state"] == "alive":
            instead = f"detent node drain {chosen['id'][:SHORT]} --yes"
            if not output.agreed(yes, _question(nodes, chosen), instead):
                output.say("Nothing was changed.")
                return 1
        answer: Item = client.resume_node(chosen["id"]) if undo else client.drain_node(chosen["id"])
        if wait:
            answer = _until_drained(client, answer, limit)
    output.say(_outcome(answer, undo, wait))
    output.print_for_machines(answer)
    return 0


@command(node, "dismiss", examples=("detent node dismiss 3f9a",))
@click.argument("node_id", metavar="NODE")
@api_options(quiet="the node's id only")
def dismiss(node_id: str) -> None:
    """Acknowledge that a node was lost, so that it is no longer listed as a problem.

    `detent node list --all` shows it until a day after it was lost.
    """
    with connect() as client:
        chosen = find(client.get_cluster()["former_nodes"], node_id)
        if chosen["state"] != "lost":
            raise Conflict(f"Node {chosen['id'][:SHORT]} was shut down properly: there is nothing to dismiss.")
        answer: Item = client.dismiss_node(chosen["id"])
    output.say(f"Node {answer['id'][:SHORT]} is no longer a problem.")
    output.print_for_machines(answer)


def find(nodes: list[Item], given: str) -> Item:
    """The node whose id has this prefix; evicted nodes count only where no other matches."""
    for candidates in ([node for node in nodes if node["state"] != "evicted"], nodes):
        found = [node for node in candidates if node["id"].startswith(given.lower())]
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(node["id"] for node in found)
            raise UsageError(f"{given!r} matches {len(found)} nodes: {shown}. Give a longer prefix.")
    raise NotFound(f"There is no node {given!r}: `detent node list` shows the nodes.")


def _question(nodes: list[Item], chosen: Item) -> str:
    question = (
        f"Drain node {chosen['id'][:SHORT]}{_where(chosen)}, which leads {plural(chosen['partitions'], 'partition')}"
    )
    question += f" and has {plural(chosen['running'], 'run')}?" if chosen["running"] is not None else "?"
    others = [node for node in nodes if node["state"] == "alive" and node["id"] != chosen["id"]]
    for role, lack in (("scheduler", "no tick will fire"), ("worker", "runs will wait")):
        if role in chosen["roles"] and not any(role in node["roles"] for node in others):
            question += f" There is no other {role}: {lack}."
    return question


def _where(node: Item) -> str:
    return f" on {node['host']}" if node["host"] else ""


def _until_drained(client: JsonClient, answer: Item, limit: float | None) -> Item:
    """The node once it leads and runs nothing, or has left."""
    deadline = None if limit is None else time.monotonic() + limit
    pause = threading.Event()
    while answer["partitions"] or answer["running"]:
        if deadline is not None and time.monotonic() >= deadline:
            left = f"leads {plural(answer['partitions'], 'partition')} and has {plural(answer['running'], 'run')}"
            raise TimedOut(f"Node {answer['id'][:SHORT]} still {left} after {limit:g} s.")
        pause.wait(POLL_SECONDS)
        found = [node for node in client.get_cluster()["nodes"] if node["id"] == answer["id"]]
        if not found:
            return {**answer, "state": "evicted", "partitions": 0, "running": 0}
        if found[0]["state"] == "alive":
            raise Conflict(f"The drain of node {answer['id'][:SHORT]} was withdrawn in the meantime.")
        answer = found[0]
    return answer


def _outcome(answer: Item, undo: bool, wait: bool) -> str:
    name = answer["id"][:SHORT]
    if undo:
        return f"Node {name} takes part again."
    if answer["state"] == "evicted":
        return f"Node {name} has left."
    if wait:
        return f"Node {name} is drained: it leads nothing and runs nothing."
    return f"Node {name} is draining: `detent node drain {name} --undo` withdraws the drain."
