"""Checks of the cluster: who is alive, who leads, and whether the API answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from detent.cli import times
from detent.cli.doctor.findings import Finding, number
from detent.client.documents import Client
from detent.cluster.diagnosis import CLOCK_OFFSET_MS, Tenure, replacements
from detent.domain.identity import node_name
from detent.errors import DetentError
from detent.settings.settings import Settings
from detent.store.db import Row

MUCH_OFFSET = CLOCK_OFFSET_MS / 1000


def called(node: Row) -> str:
    return f"{node_name(node['node'])} on {node['host']}"


def check_nodes(nodes: Sequence[Row]) -> Iterator[Finding]:
    alive = [node for node in nodes if node["alive"]]
    if not alive:
        yield Finding("nodes", "fail", "No node is alive: nothing fires and nothing runs.", "Start `detent serve`.")
    else:
        roles = {role for node in alive for role in node["roles"]}
        missing = [role for role in ("scheduler", "worker") if role not in roles]
        told = f"{number(len(alive), 'node')} alive: {', '.join(map(called, alive))}"
        if missing:
            advice = f"Start `detent {missing[0]}`, or `detent serve`."
            yield Finding("nodes", "fail", f"{told}; none of them is a {missing[0]}.", advice)
        else:
            yield Finding("nodes", "ok", f"{told}.")
    for node in nodes:
        if not node["alive"]:
            yield _gone(node, bool(alive))
        elif node["draining"]:
            told = f"Node {called(node)} is draining: it leads nothing and takes no runs."
            yield Finding("draining", "warn", told, "Stop it, or bring it back with `detent node drain --undo`.")
    yield from _differences(alive)


def check_lost(lost: Sequence[Row], nodes: Sequence[Row]) -> Iterator[Finding]:
    """Nodes that stopped answering within a day, were taken over, and neither came back nor were dismissed."""
    gone = [Tenure(row["node"], row["host"], row["roles"], row["seen_at"]) for row in lost]
    back = replacements(gone, [Tenure(row["node"], row["host"], row["roles"], row["started_at"]) for row in nodes])
    for row in lost:
        if row["node"] not in back and not row["dismissed"]:
            told = f"Node {called(row)} stopped answering at {row['seen_at']:%Y-%m-%d %H:%M:%S} UTC"
            taken = f"{number(row['partitions'], 'partition')} and {number(row['runs'], 'run')} were taken over."
            advice = f"Look at its log, and start it again; or `detent node dismiss {node_name(row['node'])[:8]}`."
            yield Finding("lost node", "warn", f"{told}; {taken}", advice)


def _gone(node: Row, others: bool) -> Finding:
    told = (
        f"Node {called(node)} has not been heard of for {times.span(node['age'] * 1000)}; it still has "
        f"{number(node['partitions'], 'partition')} and {number(node['runs'], 'run')}."
    )
    if others and node["age"] < 3 * node["ttl"]:
        return Finding("lost node", "warn", told, "The others take over within seconds: look again.")
    advice = "Nobody takes over: look at the logs of the others." if others else "A node that starts takes over."
    return Finding("lost node", "fail" if others else "warn", told, advice)


def _differences(alive: Sequence[Row]) -> Iterator[Finding]:
    for node in alive:
        if abs(node["clock_offset"]) >= MUCH_OFFSET:
            told = f"The clock of {called(node)} is {times.span(node['clock_offset'] * 1000)} off the database's."
            yield Finding("clock of node", "warn", told, "Ticks are right all the same; set up NTP there.")
    for column, what, advice in (
        ("version", "versions of detent", "Finish the upgrade: mixed versions are for rolling deploys only."),
        ("tzdata", "releases of the zone data", "Install the same tzdata everywhere: next ticks may differ."),
    ):
        found = sorted({node[column] for node in alive})
        if len(found) > 1:
            by_value = "; ".join(
                f"{value}: {', '.join(called(node) for node in alive if node[column] == value)}" for value in found
            )
            yield Finding("nodes differ", "warn", f"Nodes have different {what} ({by_value}).", advice)


def check_partitions(row: Row, nodes: Sequence[Row]) -> Finding:
    if not row["without"]:
        return Finding("partitions", "ok", f"Each of the {row['total']} partitions has a leader.")
    told = f"{row['without']} of {row['total']} partitions have no leader: their jobs do not fire."
    if not any(node["alive"] and "scheduler" in node["roles"] for node in nodes):
        return Finding("partitions", "fail", told, "Start `detent serve` or `detent scheduler`.")
    return Finding("partitions", "fail", told, "Take-over needs seconds: look again, then read the schedulers' logs.")


def check_ticks(row: Row) -> Finding:
    """Whether due ticks are fired: asked of the cursors, whatever the nodes believe."""
    if not row["ticks"]:
        return Finding("ticks", "ok", "No tick has been due for more than 10 seconds.")
    since = times.relative(times.written(row["oldest"]), times.now())
    where = number(row["partitions"], "partition")
    found = f"{number(row['ticks'], 'tick', 'are')} overdue in {where}, the oldest {since}."
    advice = "If a scheduler is alive and this does not shrink, read its log (`/readyz?verbose` of it says more)."
    return Finding("ticks", "fail", found, advice)


def check_api(settings: Settings, client: Client) -> tuple[Finding, bool]:
    """What answers at the API's address, and whether that is a detent server."""
    named = settings.origins["api_url"] != "default"
    try:
        ready = client.ready()
        version = client.version()["version"]
    except DetentError as error:
        told, _, advice = error.message.partition(": ")
        return Finding("api", "fail" if named else "warn", f"{told}.", _sentence(advice)), False
    where = f"detent {version} answers at {settings.api_url} and is"
    checks = ready.get("checks", {}).items()
    missing = [f"{name} ({_clause(check['why'])})" for name, check in checks if check["needed"] and not check["ok"]]
    if missing:
        return Finding("api", "fail", f"{where} not ready: {'; '.join(missing)}.", "Look at its log."), True
    doubtful = [f"{name} ({_clause(check['why'])})" for name, check in checks if not check["ok"]]
    if doubtful:
        return Finding("api", "warn", f"{where} ready, except: {'; '.join(doubtful)}."), True
    return Finding("api", "ok", f"{where} ready."), True


def _clause(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
