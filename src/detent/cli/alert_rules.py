"""`detent alert-rule …`"""

from __future__ import annotations

import time
from typing import Any

import click

from detent.cli import output, times
from detent.cli.alert_options import fields_of, rule_options
from detent.cli.base import command, group, option
from detent.cli.invocation import api_options, connect, invocation
from detent.cli.output import Column, Field, Item
from detent.errors import UsageError

alert_rule = group(
    "alert-rule", "Report dead runs, missed deadlines and the like to people and services.", panel="Jobs and runs"
)

WAIT_SECONDS = 30.0
LOOK_SECONDS = 0.5


def _receiver(rule: Item) -> str:
    receiver = rule["receiver"]
    match receiver["type"]:
        case "email":
            return f"email {', '.join(receiver['to'])}"
        case kind:
            return str(kind)


def _filters(rule: Item) -> str:
    parts = [f"{what} {name}" for what, field in (("tag", "tags"), ("queue", "queues"), ("job", "jobs"))
             for name in rule[field]]  # fmt: skip
    return ", ".join(parts) or "all jobs"


def _held(rule: Item) -> str:
    until = times.local_both(rule.get("held_until"), times.now())
    return until and f"{until}, the end of the quiet hours: messages wait"


def _state(rule: Item) -> str:
    return "enabled" if rule["enabled"] else "disabled"


COLUMNS = (
    Column("NAME", lambda rule: rule["name"]),
    Column("EVENTS", lambda rule: ", ".join(rule["events"]), least=12),
    Column("JOBS", _filters, least=12),
    Column("RECEIVER", _receiver, least=12),
    Column("STATE", _state),
    Column("OPEN", lambda rule: rule["open_alerts"], right=True),
    Column("LAST SENT", lambda rule: rule["last_sent_at"], lambda one, at: times.relative(one["last_sent_at"], at)),
    Column("ERROR", lambda rule: rule["last_error"], least=20, extra=True),
)
MESSAGES = (
    Column("ID", lambda one: one["id"], right=True),
    Column("EVENT", lambda one: one["event"]),
    Column("STATUS", lambda one: one["status"]),
    Column("MADE", lambda one: one["made_at"], lambda one, at: times.both(one["made_at"], at)),
    Column("TRIES", lambda one: one["tries"], right=True),
    Column("ERROR", lambda one: one["error"], least=20),
)


@command(
    alert_rule,
    "create",
    examples=(
        "detent alert-rule create chat --on dead --tag payments --slack secret:url",
        "detent alert-rule create pager --on set_aside --pagerduty pagerduty-key",
    ),
)
@click.argument("name")
@rule_options
@api_options(quiet="the rule's name only")
def create(name: str, **given: Any) -> None:
    """Create a rule that reports events of jobs to a receiver.

    Give at least one --on, and one receiver: --webhook, --slack, --email or
    --pagerduty. Events of one rule that happen together become one message;
    another one follows when all jobs have recovered. See `detent alert-rule
    test`.
    """
    fields = fields_of(given)
    if "events" not in fields:
        raise UsageError("--on is missing: say which events are reported, such as --on dead.")
    if "receiver" not in fields:
        raise UsageError("The receiver is missing: give --webhook, --slack, --email or --pagerduty.")
    with connect() as client:
        answer = client.create_alert_rule(name, fields)
    _done("Created", answer, f"`detent alert-rule test {answer['name']}` sends a test message")


@command(
    alert_rule,
    "edit",
    examples=("detent alert-rule edit payments --min-severity error", "detent alert-rule edit nights --disabled"),
)
@click.argument("name")
@rule_options
@api_options(quiet="the rule's name only")
def edit(name: str, **given: Any) -> None:
    """Change a rule; what is not given stays.

    A new receiver replaces the former one, and --tag, --queue, --job and --on
    replace the former lists. A disabled rule reports no new events.
    """
    fields = fields_of(given)
    if not fields:
        raise UsageError("Nothing to change was given: see `detent alert-rule edit --help`.")
    with connect() as client:
        answer = client.change_alert_rule(name, fields)
    _done("Changed", answer, "all nodes follow within seconds")


def _done(verb: str, answer: Item, rest: str) -> None:
    output.say(f"{verb} alert rule {answer['name']}: {rest}.")
    if invocation().format != "text":
        output.print_fields(answer, (), identity="name")


@command(alert_rule, "list", examples=("detent alert-rule list",))
@api_options(quiet="names only")
def list_rules() -> None:
    """List the alert rules."""
    with connect() as client:
        page = client.list_alert_rules().page()
    empty = "There are no alert rules yet: create one, see `detent alert-rule create --help`."
    output.print_page(page, COLUMNS, empty, identity="name")


@command(alert_rule, "get", examples=("detent alert-rule get payments",))
@click.argument("name")
@api_options(quiet="the rule's name only")
def get(name: str) -> None:
    """Show a rule, with its open alerts and the error of its last message."""
    with connect() as client:
        rule = client.get_alert_rule(name)
    hours = rule["quiet_hours"]
    quiet = None if hours is None else f"{hours['start']}-{hours['end']} {hours.get('timezone', 'UTC')}"
    fields = (
        Field("name", "Name", rule["name"]),
        Field("events", "Events", ", ".join(rule["events"])),
        Field("filters", "Jobs", _filters(rule)),
        Field("receiver", "Receiver", _receiver(rule)),
        Field("min_severity", "From severity", rule["min_severity"]),
        Field("group_seconds", "Grouped", f"{rule['group_seconds']:g} s, by {rule['group_by']}"),
        Field("quiet_hours", "Quiet hours", quiet),
        Field("state", "State", _state(rule)),
        Field("open_alerts", "Open alerts", rule["open_alerts"]),
        Field("held_until", "Held until", rule.get("held_until"), _held(rule)),
        Field("last_sent_at", "Last sent", rule["last_sent_at"], times.local_both(rule["last_sent_at"], times.now())),
        Field("last_error", "Last error", rule["last_error"]),
    )
    output.print_fields(rule, fields, identity="name")


@command(alert_rule, "messages", examples=("detent alert-rule messages payments",))
@click.argument("name")
@option("--limit", type=click.IntRange(1, 100), default=20, help="How many. [20]")
@api_options(quiet="ids only")
def messages(name: str, limit: int) -> None:
    """List the last messages of a rule, and what kept them from being delivered."""
    with connect() as client:
        page = client.list_alert_messages(name, limit=limit).page()
    output.print_page(page, MESSAGES, f"The rule {name} has sent no message yet.")


@command(alert_rule, "test", examples=("detent alert-rule test payments",))
@click.argument("name")
@api_options(quiet="nothing")
def test(name: str) -> int:
    """Send a test message, and wait until it is delivered.

    A scheduler sends it, as it does with all messages. Exits with 1 if it was
    not delivered.
    """
    with connect() as client:
        message: Item = client.test_alert_rule(name)
        until = time.monotonic() + WAIT_SECONDS
        while message["status"] == "waiting" and message["error"] is None and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
            found = client.list_alert_messages(name, limit=100).page()["items"]
            message = next((one for one in found if one["id"] == message["id"]), message)
    if invocation().format == "json":
        output.print_json(message)
    if message["status"] == "sent":
        output.say(f"The receiver of {name} got the test message.")
        return 0
    why = message["error"] or f"no scheduler has tried it within {WAIT_SECONDS:g} s: is one running?"
    output.say(f"The test message of {name} was not delivered: {why}")
    return 1


@command(alert_rule, "delete", examples=("detent alert-rule delete payments --yes",))
@click.argument("name")
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options(quiet="nothing")
def delete(name: str, yes: bool) -> int:
    """Delete a rule with its alerts; messages that wait are not sent.

    Incidents that it opened at PagerDuty stay open: resolve them there, or
    disable the rule first and wait for the recoveries.
    """
    if not output.agreed(yes, f"Delete alert rule {name}?", f"detent alert-rule delete {name} --yes"):
        output.say("Nothing was deleted.")
        return 1
    with connect() as client:
        client.delete_alert_rule(name)
    output.say(f"Deleted alert rule {name}.")
    if invocation().format == "json":
        output.print_json({"name": name, "status": "deleted"})
    return 0
