"""What a message of an alert rule says, to each kind of receiver. Pure: the time is an argument.

The content is fixed when the message is made. Every try renders the same content under the same id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any

import msgspec

from detent.domain.alert_rule import SEVERITIES
from detent.domain.alerts import MessageEvent
from detent.domain.counts import plural
from detent.store.alerts import AlertNotice, AlertSummary
from detent.targets.text import one_line
from detent.version import __version__

SHOWN_JOBS = 10
NAMED_JOBS = 5
LONGEST_SUMMARY = 1_000
"""PagerDuty refuses summaries of more than 1,024 characters."""

WHOLE = ("recovered", "passed")
"""Messages that say all of an alert. The others say what is new since the message before."""

_REASONS = {"start": "did not start in time", "finish": "did not succeed in time"}


def content_of(rule: str, event: MessageEvent, summary: AlertSummary) -> dict[str, Any]:
    """The `data` of the message, without the tenant."""
    whole = event in WHOLE
    untracked = summary.untracked if whole else summary.fresh_untracked
    data: dict[str, Any] = {
        "rule": rule,
        "alert": summary.alert,
        "severity": SEVERITIES[summary.severity],
        "opened_at": summary.opened_at,
        "at": summary.at,
        "counts": [_count(kind, whole=whole) for kind in summary.kinds if whole or kind["fresh"]],
        "events_total": summary.events,
        "events_of_other_jobs": untracked,
        "jobs_total": summary.jobs,
        "jobs": summary.shown,
    }
    return data


def _count(kind: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """How many events, of how many jobs: since the last message, or of the whole alert."""
    return {
        "event": kind["kind"],
        "count": kind["events" if whole else "fresh"],
        "jobs": kind["jobs" if whole else "fresh_jobs"],
    }


# --- sentences ---


def headline(notice: AlertNotice) -> str:
    """One line: what happened, how often, to which jobs."""
    if notice.event == "test":
        return f"This is a test of the alert rule {notice.rule!r}: its receiver gets messages."
    facts = "; ".join(_clause(_meant(notice), count) for count in notice.content["counts"])
    if others := notice.content["events_of_other_jobs"]:
        facts = f"{facts}; {others} of other jobs" if facts else f"{plural(others, 'event')} of other jobs"
    since = f"since {_time(notice.content['opened_at'])}"
    match notice.event:
        case "recovered":
            return f"Recovered: {facts} {since}."
        case "passed":
            return f"Over again: {facts} {since}; all jobs have recovered."
        case "continued":
            return f"Continues: {facts}, open {since}."
        case _:
            return f"{facts[:1].upper()}{facts[1:]}."


def _meant(notice: AlertNotice) -> list[Mapping[str, Any]]:
    """The jobs that the counts of a message are about: those with new events, or all."""
    return [job for job in notice.content["jobs"] if notice.event in WHOLE or _new(job)]


def _new(job: Mapping[str, Any]) -> int:
    """How many events since the message before. Messages of older versions have no `new`."""
    return int(job.get("new", job["count"]))


def _clause(meant: Sequence[Mapping[str, Any]], count: Mapping[str, Any]) -> str:
    kind, number, jobs = count["event"], int(count["count"]), int(count["jobs"])
    known = [str(job["job"]) for job in meant if job["event"] == kind and job["job"] is not None]
    named = known[: min(NAMED_JOBS, jobs)]
    names = ", ".join(named) + (f" and {jobs - len(named)} more" if jobs > len(named) else "")
    of_jobs = f"of {plural(jobs, 'job')}" + (f" ({names})" if named else "")
    if jobs == 1 and named:
        of_jobs = f"of the job {names}"
    match kind:
        case "dead":
            return f"{plural(number, 'dead run')} {of_jobs}"
        case "deadline":
            return f"{plural(number, 'missed deadline')} {of_jobs}"
        case "catch_up":
            return f"{plural(number, 'missed tick')} {of_jobs} to catch up"
        case "failures":
            return f"only dead runs lately {of_jobs}"
        case "paused":
            return f"automatic pause {of_jobs}"
        case _:
            return f"ticks that cannot be fired {of_jobs}"


def _lines(notice: AlertNotice) -> list[str]:
    """A line for each job that is shown."""
    content, lines = notice.content, []
    for job in content["jobs"]:
        detail = _REASONS.get(job["detail"] or "", job["detail"] or "")
        at = f", tick {_time(job['scheduled_at'])}" if job["scheduled_at"] else ""
        run = f", run {job['run_id']}" if job["run_id"] else ""
        over = " (recovered)" if job["recovered"] else ""
        what = _how_often(job, whole=notice.event in WHOLE)
        lines.append(one_line(f"{job['job']}: {what}{': ' if detail else ''}{detail}{at}{run}{over}"))
    rest = content.get("jobs_total", 0) - len({job["job_id"] for job in content["jobs"]})
    if rest > 0:
        lines.append(f"and {plural(rest, 'more job')}")
    return lines


def _how_often(job: Mapping[str, Any], *, whole: bool) -> str:
    """Such as "dead x 2 (6 in all)"."""
    total, new = int(job["count"]), _new(job)
    shown = total if whole or not new else new
    times = f"{job['event']} x {shown}" if shown != 1 else str(job["event"])
    if whole or new == total:
        return times
    return f"{times} ({total} in all)" if new else f"{times} before"


def _time(text: str) -> str:
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


# --- ids ---


def message_id(notice: AlertNotice) -> str:
    """The same at every try; as ids of notices about incidents are."""
    made = (notice.at - notice.age).astimezone(UTC)
    return f"notice_{notice.notice}_{made:%Y%m%d%H%M%S%f}"


def alert_key(notice: AlertNotice) -> str:
    """The same in all messages of an alert. The time distinguishes it from alerts of another cluster."""
    if notice.alert is None:
        return f"detent-test-{message_id(notice)}"
    opened = datetime.fromisoformat(notice.content["opened_at"]).astimezone(UTC)
    return f"detent-alert-{notice.alert}-{opened:%Y%m%d%H%M%S%f}"


# --- one form for each receiver ---


def webhook_body(notice: AlertNotice) -> bytes:
    at = notice.content["at"]
    data = {key: value for key, value in notice.content.items() if key != "at"}
    data |= {"tenant": notice.tenant, "key": alert_key(notice), "message": headline(notice)}
    return msgspec.json.encode({"type": f"alert.{notice.event}", "timestamp": at, "data": data})


def slack_body(notice: AlertNotice) -> bytes:
    text = "\n".join(
        [f"*{_slack(notice.rule)}* ({notice.content['severity']}) {_slack(headline(notice))}"]
        + [f"• {_slack(line)}" for line in _lines(notice)]
    )
    return msgspec.json.encode({"text": text})


def pagerduty_bodies(notice: AlertNotice, routing_key: str) -> list[bytes]:
    """The events to send, in this order: what is over already is triggered and resolved."""
    actions = {"recovered": ["resolve"], "passed": ["trigger", "resolve"], "test": ["trigger", "resolve"]}
    return [_pagerduty(notice, routing_key, action) for action in actions.get(notice.event, ["trigger"])]


def _pagerduty(notice: AlertNotice, routing_key: str, action: str) -> bytes:
    event: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": action,
        "dedup_key": alert_key(notice),
    }
    if action == "trigger":
        event |= {
            "client": "detent",
            "payload": {
                "summary": one_line(f"{notice.rule}: {headline(notice)}", LONGEST_SUMMARY),
                "source": f"detent/{notice.tenant}",
                "severity": notice.content["severity"],
                "timestamp": notice.content["at"],
                "group": notice.rule,
                "class": ",".join(count["event"] for count in notice.content["counts"]) or "test",
                "custom_details": notice.content,
            },
        }
    return msgspec.json.encode(event)


def mail_content(notice: AlertNotice, sender: str, to: list[str]) -> bytes:
    """Replies to the first mail of the alert, so that mail programs show them together."""
    message, domain = EmailMessage(), sender.rpartition("@")[2]
    message["From"] = sender
    message["To"] = ", ".join(to)
    urgency = "" if notice.event in ("recovered", "passed") else f"{notice.content['severity']}: "
    message["Subject"] = one_line(f"[detent] {urgency}{notice.rule}: {headline(notice)}", 200)
    message["Date"] = format_datetime(notice.at - notice.age)
    message["Message-ID"] = f"<{message_id(notice)}@{domain}>"
    message["References"] = f"<{alert_key(notice)}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message["X-Mailer"] = f"detent/{__version__}"
    rest = f"Alert rule {notice.rule} of the tenant {notice.tenant}."
    message.set_content("\n".join([headline(notice), "", *_lines(notice), "", rest]) + "\n", cte="quoted-printable")
    return message.as_bytes(policy=SMTP)


def _slack(text: str) -> str:
    """Escape the three characters that Slack interprets."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
