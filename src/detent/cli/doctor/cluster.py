"""Checks of the cluster: live nodes, leadership, and whether the API answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from detent.cli import times
from detent.cli.doctor.results import CheckResult, number
from detent.cluster.diagnosis import CLOCK_OFFSET_MS, Tenure, replacements
from detent.domain.identity import node_name
from detent.errors import DetentError
from detent.settings.settings import Settings
from detent.store.db import Row

if TYPE_CHECKING:
    from detent.client import JsonClient

MUCH_OFFSET = CLOCK_OFFSET_MS / 1000
NEWEST_DEAD = 500
MOST_LETTERS = 10_000


def called(node: Row) -> str:
    return f"{node_name(node['node'])} on {node['host']}"


def check_nodes(nodes: Sequence[Row]) -> Iterator[CheckResult]:
    alive = [node for node in nodes if node["alive"]]
    if not alive:
        yield CheckResult("nodes", "fail", "No node is alive: no tick fires and no job runs.", "Start `detent serve`.")
    else:
        roles = {role for node in alive for role in node["roles"]}
        missing = [role for role in ("scheduler", "worker") if role not in roles]
        text = f"{number(len(alive), 'node')} alive: {', '.join(map(called, alive))}"
        if missing:
            advice = f"Start `detent {missing[0]}`, or `detent serve`."
            yield CheckResult("nodes", "fail", f"{text}; none of them is a {missing[0]}.", advice)
        else:
            yield CheckResult("nodes", "ok", f"{text}.")
    for node in nodes:
        if not node["alive"]:
            yield _gone(node, bool(alive))
        elif node["draining"]:
            text = f"Node {called(node)} is draining: it leads nothing and claims no runs."
            advice = "Stop it, or withdraw the drain with `detent node drain --undo`."
            yield CheckResult("draining", "warn", text, advice)
    yield from _differences(alive)


def check_lost(lost: Sequence[Row], nodes: Sequence[Row]) -> Iterator[CheckResult]:
    """Nodes that were lost within the last day, and neither came back nor were dismissed."""
    gone = [Tenure(row["node"], row["host"], row["roles"], row["seen_at"]) for row in lost]
    back = replacements(gone, [Tenure(row["node"], row["host"], row["roles"], row["started_at"]) for row in nodes])
    for row in lost:
        if row["node"] not in back and not row["dismissed"]:
            text = f"Node {called(row)} was lost: its last heartbeat was at {row['seen_at']:%Y-%m-%d %H:%M:%S} UTC"
            taken = f"{number(row['partitions'], 'partition')} and {number(row['runs'], 'run')} were taken over."
            advice = f"Check its log and start it again, or run `detent node dismiss {node_name(row['node'])[:8]}`."
            yield CheckResult("lost node", "warn", f"{text}; {taken}", advice)


def _gone(node: Row, others: bool) -> CheckResult:
    text = (
        f"Node {called(node)} has sent no heartbeat for {times.span(node['age'] * 1000)}; it still has "
        f"{number(node['partitions'], 'partition')} and {number(node['runs'], 'run')}."
    )
    if others and node["age"] < 3 * node["ttl"]:
        return CheckResult("lost node", "warn", text, "Other nodes take over within seconds: check again.")
    advice = "No node takes over: check the logs of the others." if others else "The next node that starts takes over."
    return CheckResult("lost node", "fail" if others else "warn", text, advice)


def _differences(alive: Sequence[Row]) -> Iterator[CheckResult]:
    for node in alive:
        if abs(node["clock_offset"]) >= MUCH_OFFSET:
            text = (
                f"The clock of {called(node)} differs by {times.span(node['clock_offset'] * 1000)} from the database's."
            )
            yield CheckResult("clock of node", "warn", text, "Ticks are not affected; set up NTP on that host.")
    for column, what, advice in (
        ("version", "versions of detent", "Finish the upgrade: mixed versions are for rolling deploys only."),
        ("tzdata", "releases of the zone data", "Install the same tzdata everywhere: next ticks may differ."),
    ):
        found = sorted({node[column] for node in alive})
        if len(found) > 1:
            by_value = "; ".join(
                f"{value}: {', '.join(called(node) for node in alive if node[column] == value)}" for value in found
            )
            yield CheckResult("nodes differ", "warn", f"Nodes have different {what} ({by_value}).", advice)


def check_partitions(row: Row, nodes: Sequence[Row]) -> CheckResult:
    if not row["without"]:
        return CheckResult("partitions", "ok", f"Each of the {row['total']} partitions has a leader.")
    text = f"{row['without']} of {row['total']} partitions have no leader: their jobs do not fire."
    if not any(node["alive"] and "scheduler" in node["roles"] for node in nodes):
        return CheckResult("partitions", "fail", text, "Start `detent serve` or `detent scheduler`.")
    return CheckResult(
        "partitions", "fail", text, "A take-over takes seconds: check again, then read the schedulers' logs."
    )


def check_ticks(row: Row) -> CheckResult:
    """Whether due ticks fire: computed from the cursors, independently of the nodes."""
    if not row["ticks"]:
        return CheckResult("ticks", "ok", "No tick has been due for more than 10 seconds.")
    since = times.relative(times.written(row["oldest"]), times.now())
    where = number(row["partitions"], "partition")
    found = f"{number(row['ticks'], 'tick', 'are')} overdue in {where}, the oldest {since}."
    advice = "If a scheduler is alive and this does not shrink, check its log and its `/readyz?verbose`."
    return CheckResult("ticks", "fail", found, advice)


def check_keys(ever_created: bool, any_valid: bool) -> CheckResult:
    if not ever_created:
        text = "There is no API key: requests that come from the machine of a server need none."
        return CheckResult("keys", "ok", text)
    if any_valid:
        return CheckResult("keys", "ok", "The cluster has API keys: every request needs one.")
    text = "Every API key is revoked or expired: the API refuses every request."
    return CheckResult("keys", "warn", text, "Create one with `detent key create --local --scope admin`.")


def check_calls(row: Row) -> Iterator[CheckResult]:
    """Runs that died because their tenant may not call their address."""
    if row["jobs"]:
        found = f"Runs of {number(row['jobs'], 'job')} died because their address is not allowed."
        advice = f"Allow it if you trust it; `detent dlq redrive` then retries the runs. The newest: {row['error']}"
        yield CheckResult("calls", "warn", found, advice)


def check_dead_letters(row: Row) -> Iterator[CheckResult]:
    """Dead runs that wait to be forwarded because their topic does not take them."""
    if row["letters"]:
        many = "At least " if row["letters"] >= MOST_LETTERS else ""
        found = f"{many}{number(row['letters'], 'dead run')} could not be forwarded to their topic yet."
        advice = f"They are retried for a week. Check the dead_letter_topic of their jobs and tenants. {row['error']}"
        yield CheckResult("dead letters", "warn", found, advice)


def check_notices(row: Row) -> Iterator[CheckResult]:
    """Notifications that did not arrive: people may not know of what they report."""
    for count, what in ((row["given_up"], "Given up within the last day"), (row["waiting"], "Not delivered yet")):
        if count:
            many = " or more" if count >= MOST_LETTERS else ""
            found = f"{what}: {number(count, 'notification')}{many}."
            named = f"`detent alert-rule messages {row['rule']}`" if row["rule"] else "`detent incident list`"
            advice = f"Correct the receiver; {named} shows the errors. The newest: {row['error']}"
            yield CheckResult("notifications", "warn", found, advice)


def check_api(settings: Settings, client: JsonClient) -> tuple[CheckResult, bool]:
    """Whether a detent server answers at the API's address, and whether it is ready."""
    named = settings.origins["api_url"] != "default"
    try:
        ready = client.readiness()
        version = client.version()["version"]
    except DetentError as error:
        text, _, advice = error.message.partition(": ")
        return CheckResult("api", "fail" if named else "warn", f"{text}.", _sentence(advice)), False
    where = f"detent {version} answers at {settings.api_url} and is"
    checks = ready.get("checks", {}).items()
    missing = [f"{name} ({_clause(check['why'])})" for name, check in checks if check["needed"] and not check["ok"]]
    if missing:
        return CheckResult("api", "fail", f"{where} not ready: {'; '.join(missing)}.", "Check its log."), True
    doubtful = [f"{name} ({_clause(check['why'])})" for name, check in checks if not check["ok"]]
    if doubtful:
        return CheckResult("api", "warn", f"{where} ready, except: {'; '.join(doubtful)}."), True
    return CheckResult("api", "ok", f"{where} ready."), True


def _clause(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
