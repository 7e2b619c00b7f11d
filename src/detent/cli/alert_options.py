"""The options of `detent alert-rule create` and `edit`, and the fields of the API that they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from detent.cli import times
from detent.cli.base import option
from detent.errors import UsageError

KINDS = ("dead", "deadline", "failures", "paused", "set_aside", "catch_up")
SEVERITIES = ("info", "warning", "error", "critical")
BY_NAME = "secret:"

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = (
    option(
        "--on",
        "events",
        type=click.Choice(KINDS),
        multiple=True,
        help="Report such events; may be repeated. dead: a dead run. deadline: a missed deadline. failures: only dead "
        "runs lately. paused: detent paused the job. set_aside: a tick cannot be fired. catch_up: many missed ticks.",
    ),
    option("--webhook", metavar="URL", help="Send a signed JSON document to this URL, or to secret:NAME."),
    option("--signing", metavar="SECRET", help="With --webhook: the secret that signs the messages."),
    option("--slack", metavar="URL", help="Send a text to this incoming webhook, or to secret:NAME."),
    option("--pagerduty", metavar="SECRET", help="Send events to PagerDuty; the secret has the integration key."),
    option("--pagerduty-url", metavar="URL", help="With --pagerduty: another endpoint of Events API v2."),
    option("--email", metavar="ADDRESS", multiple=True, help="Send a mail to this address; may be repeated."),
    option("--smtp", metavar="HOST[:PORT]", help="With --email: the mail server. [port 587, or by --smtp-tls]"),
    option("--from", "sender", metavar="ADDRESS", help="With --email: the sender."),
    option(
        "--smtp-tls",
        type=click.Choice(("starttls", "implicit", "none")),
        help="With --email: how TLS begins. [starttls]",
    ),
    option("--smtp-user", metavar="NAME", help="With --email: log in as this user."),
    option("--smtp-password", metavar="SECRET", help="With --email: the secret that has the password."),
    option("--smtp-ca", metavar="SECRET", help="With --email: the secret that has the authorities, in PEM form."),
    option("--tag", "tags", metavar="TAG", multiple=True, help="Only jobs with this tag; may be repeated."),
    option("--queue", "queues", metavar="NAME", multiple=True, help="Only jobs of this queue; may be repeated."),
    option("--job", "jobs", metavar="PATTERN", multiple=True, help="Only jobs with such a name, with * and ?."),
    option("--min-severity", type=click.Choice(SEVERITIES), help="Only events of this severity or more. [info]"),
    option("--failures", type=int, metavar="N", help="With --on failures: after so many dead runs in a row. [3]"),
    option("--ticks", type=int, metavar="N", help="With --on catch_up: from so many ticks on. [100]"),
    option("--group", metavar="TIME", help="Report together what happens within this time. [30s]"),
    option("--group-by", type=click.Choice(("rule", "job")), help="One alert for all jobs, or one for each. [rule]"),
    option("--quiet-hours", metavar="HH:MM-HH:MM", help="Hold messages back in these hours; none removes them. [none]"),
    option("--quiet-zone", metavar="ZONE", help="The time zone of --quiet-hours. [UTC]"),
    option("--quiet-all/--quiet-uncritical", default=None, help="Hold critical alerts back, too. [no]"),
    option("--recovered/--no-recovered", default=None, help="Report recoveries. [yes]"),
    option("--enabled/--disabled", default=None, help="Whether the rule reports new events. [enabled]"),
)


def rule_options(function: Function) -> Function:
    for each in reversed(_OPTIONS):
        function = each(function)
    return function


def fields_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given."""
    found: dict[str, Any] = {name: list(given[name]) for name in ("events", "tags", "queues", "jobs") if given[name]}
    plain = {
        "min_severity": given["min_severity"],
        "consecutive_failures": given["failures"],
        "catch_up_ticks": given["ticks"],
        "group_seconds": None if given["group"] is None else times.read_duration("--group", given["group"]),
        "group_by": given["group_by"],
        "recovered": given["recovered"],
        "enabled": given["enabled"],
    }
    found |= {name: value for name, value in plain.items() if value is not None}
    receiver = _receiver(given)
    if receiver is not None:
        found["receiver"] = receiver
    if given["quiet_hours"] is not None:
        found["quiet_hours"] = _quiet_hours(given)
    return found


def _receiver(given: Mapping[str, Any]) -> dict[str, Any] | None:
    kinds = [name for name in ("webhook", "slack", "pagerduty", "email") if given[name]]
    if len(kinds) > 1:
        raise UsageError(
            f"--{kinds[0]} and --{kinds[1]} are both given: a rule has one receiver, so create another rule."
        )
    match kinds:
        case ["webhook"]:
            return _filled(type="webhook", url=_url(given["webhook"]), signing=_secret(given["signing"]))
        case ["slack"]:
            return {"type": "slack", "url": _url(given["slack"])}
        case ["pagerduty"]:
            key = _secret(given["pagerduty"])
            return _filled(type="pagerduty", routing_key=key, url=given["pagerduty_url"])
        case ["email"]:
            return _email(given)
        case _:
            return None


def _email(given: Mapping[str, Any]) -> dict[str, Any]:
    for flag, name in (("--smtp", "smtp"), ("--from", "sender")):
        if given[name] is None:
            raise UsageError(f"{flag} is missing: with --email, give the mail server and the sender.")
    host, colon, port = given["smtp"].rpartition(":")
    if not colon or not port.isdecimal():
        host, port = given["smtp"], ""
    return _filled(
        type="email",
        to=list(given["email"]),
        sender=given["sender"],
        host=host,
        port=int(port) if port else None,
        tls=given["smtp_tls"],
        username=given["smtp_user"],
        password=_secret(given["smtp_password"]),
        ca=_secret(given["smtp_ca"]),
    )


def _quiet_hours(given: Mapping[str, Any]) -> dict[str, Any] | None:
    if given["quiet_hours"] == "none":
        return None
    start, dash, end = given["quiet_hours"].partition("-")
    if not dash:
        raise UsageError(f"--quiet-hours is {given['quiet_hours']!r}: give two times such as 22:00-07:00, or none.")
    critical = None if given["quiet_all"] is None else not given["quiet_all"]
    return _filled(start=start.strip(), end=end.strip(), timezone=given["quiet_zone"], critical=critical)


def _filled(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _url(text: str) -> Any:
    return _secret(text.removeprefix(BY_NAME)) if text.startswith(BY_NAME) else text


def _secret(name: str | None) -> dict[str, str] | None:
    return None if name is None else {"secret": name.removeprefix(BY_NAME)}
