"""Events of jobs reach people: one message for many events, one more after the recovery, to each kind of receiver."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from detent.cli.doctor.cluster import check_notices
from detent.domain.alerts import trial_content
from detent.store import sql
from detent.store.db import PoolName
from detent.targets.messenger import Messenger
from detent.targets.policies import ClusterPolicies
from detent.upkeep.alert_receivers import AlertReceivers
from tests.alerts.desk import AlertDesk
from tests.alerts.mail_server import PASSWORD, USER, mail_server
from tests.alerts.pagerduty import ROUTING_KEY, pagerduty
from tests.observability.receiver import SECRET, Receiver
from tests.support.certificates import Authority
from tests.support.ports import free_port

HOUR = timedelta(hours=1)
MISSED = """
WITH missed AS (
    INSERT INTO incidents (tenant, job, kind, within, tick, misses) VALUES (1, $1, 'finish', '1m', now(), 1)
    RETURNING incident)
INSERT INTO notices (incident, event) SELECT incident, 'missed' FROM missed
"""


def webhook(receiver: Receiver, **fields: Any) -> dict[str, Any]:
    return {"type": "webhook", "url": f"{receiver.url}/hook", **fields}


async def test_a_dead_run_is_reported_to_a_signed_webhook_and_so_is_the_recovery(
    desk: AlertDesk, receiver: Receiver
) -> None:
    signing = await desk.secret("hook-key", SECRET)
    await desk.rule(receiver=webhook(receiver, signing=signing), tags=["payments"])
    job, other = await desk.job("charge", ("payments",)), await desk.job("report")
    await desk.dies(job)
    await desk.dies(other)
    await desk.passed()
    (opened,) = receiver.messages
    data = opened.document["data"]
    assert opened.authentic and opened.document["type"] == "alert.opened"
    assert data["counts"] == [{"event": "dead", "count": 1, "jobs": 1}]
    assert [(one["job"], one["event"], one["recovered"]) for one in data["jobs"]] == [("charge", "dead", False)]
    assert data["message"] == "1 dead run of the job charge." and data["severity"] == "error"
    assert all(time.endswith("Z") for time in (data["opened_at"], data["jobs"][0]["scheduled_at"])), "as in the API"
    await desk.passed()
    assert len(receiver.messages) == 1
    await desk.succeeds(job)
    await desk.passed()
    await desk.passed()
    _, recovered = receiver.messages
    assert recovered.document["type"] == "alert.recovered" and recovered.authentic
    assert recovered.document["data"]["key"] == data["key"]
    assert recovered.headers["webhook-id"] != opened.headers["webhook-id"]
    assert await desk.sql.fetchval("SELECT count(*) FROM alerts WHERE closed_at IS NULL") == 0
    assert await desk.sql.fetchval("SELECT count(*) FROM alert_jobs") + await _events(desk) == 0


async def _events(desk: AlertDesk) -> int:
    return int(await desk.sql.fetchval("SELECT count(*) FROM alert_events"))


@pytest.mark.parametrize("runs", [50, pytest.param(2_500, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
async def test_a_flood_of_dead_runs_is_one_message_and_few_rows(desk: AlertDesk, receiver: Receiver, runs: int) -> None:
    """With the long count, 100,000 runs of 8 jobs die."""
    await desk.rule(receiver=webhook(receiver), group_seconds=60)
    jobs = [await desk.job(f"job-{number}") for number in range(8)]
    for job in jobs:
        for _ in range(5):
            await desk.dies(job, runs)
    assert await _events(desk) == 40
    await desk.passed()
    assert receiver.messages == [] and await _events(desk) == 0
    await desk.let_pass(timedelta(minutes=1))
    await desk.passed()
    (message,) = receiver.messages
    data = message.document["data"]
    assert data["counts"] == [{"event": "dead", "count": 40 * runs, "jobs": 8}] and data["events_total"] == 40 * runs
    expected = f"{40 * runs:,} dead runs of 8 jobs (job-0, job-1, job-2, job-3, job-4 and 3 more)."
    assert data["message"] == expected
    rows = {
        name: await desk.sql.fetchval(f"SELECT count(*) FROM {name}") for name in ("alerts", "alert_jobs", "notices")
    }
    assert rows == {"alerts": 1, "alert_jobs": 8, "notices": 1}


async def test_messages_about_an_alert_that_goes_on_become_rarer(desk: AlertDesk, receiver: Receiver) -> None:
    await desk.rule(receiver=webhook(receiver), group_seconds=60)
    job = await desk.job("charge")
    sent = []
    for _ in range(15):
        await desk.dies(job)
        await desk.let_pass(timedelta(minutes=1))
        await desk.passed()
        sent.append(len(receiver.messages))
    assert sent == [0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3]
    assert receiver.events()[:2] == ["opened", "continued"]
    total = sum(message.document["data"]["counts"][0]["count"] for message in receiver.messages)
    fresh = await desk.sql.fetchval("SELECT sum(fresh) FROM alert_jobs")
    assert total + fresh == 15


async def test_a_message_about_an_alert_that_goes_on_names_only_jobs_with_new_events(
    desk: AlertDesk, receiver: Receiver
) -> None:
    url = await desk.secret("slack-url", f"{receiver.url}/services/T0/B0")
    await desk.rule(receiver={"type": "slack", "url": url})
    calm, often, once = [await desk.job(name) for name in ("calm", "often", "once")]
    for job, runs in ((calm, 3), (often, 5)):
        await desk.dies(job, runs)
    await desk.passed()
    await desk.dies(often)
    await desk.passed()
    await desk.dies(often, 2)
    await desk.dies(once)
    await desk.passed()
    texts = [message.document["text"].split("\n") for message in receiver.messages]
    firsts = [text[0].removeprefix("*ops* (error) ").partition(", open since")[0] for text in texts]
    assert firsts == [
        "8 dead runs of 2 jobs (calm, often).",
        "Continues: 1 dead run of the job often",
        "Continues: 3 dead runs of 2 jobs (often, once)",
    ]
    assert [line.partition(": exhausted")[0] for line in texts[1][1:]] == [
        "• often: dead (6 in all)",
        "• calm: dead x 3 before",
    ]
    assert [line.partition(": exhausted")[0] for line in texts[2][1:]] == [
        "• often: dead x 2 (8 in all)",
        "• once: dead",
        "• calm: dead x 3 before",
    ]


async def test_slack_gets_a_text_with_the_names_escaped(desk: AlertDesk, receiver: Receiver) -> None:
    url = await desk.secret("slack-url", f"{receiver.url}/services/T0/B0")
    await desk.rule(receiver={"type": "slack", "url": url})
    await desk.dies(await desk.job("a<b>&c"), 3)
    await desk.passed()
    (message,) = receiver.messages
    assert message.path == "/services/T0/B0"
    first, second = message.document["text"].split("\n")
    assert first == "*ops* (error) 3 dead runs of the job a&lt;b&gt;&amp;c."
    assert second.startswith("• a&lt;b&gt;&amp;c: dead x 3: exhausted, tick ")


# aiosmtpd warns of itself when a client uses AUTH LOGIN.
@pytest.mark.filterwarnings("ignore:Session.login_data is deprecated")
@pytest.mark.parametrize(("tls", "plain"), [("starttls", True), ("implicit", False)])
async def test_a_mail_goes_through_tls_and_a_login(
    desk: AlertDesk, tmp_path: Path, tls: Literal["starttls", "implicit"], plain: bool
) -> None:
    authority = Authority()
    async with mail_server(tmp_path, authority.issue(), tls, plain=plain) as mailbox:
        email = {
            "type": "email", "host": "localhost", "port": mailbox.port, "tls": tls, "sender": "detent@example.com",
            "to": ["ops@example.com", "dev@example.com"], "username": USER,
            "password": await desk.secret("smtp", PASSWORD), "ca": authority.certificate,
        }  # fmt: skip
        await desk.rule("nights", receiver=email)
        job = await desk.job("zürich.\n.nightly")
        mailbox.refused = {"dev@example.com"}
        await desk.dies(job, 2)
        await desk.passed()
        await desk.succeeds(job)
        await desk.passed()
        await desk.passed()
    first, second = mailbox.mails
    assert first.encrypted and (first.sender, first.to) == ("detent@example.com", ["ops@example.com"])
    assert first.message["Subject"] == "[detent] error: nights: 2 dead runs of the job zürich. .nightly."
    assert "zürich. .nightly: dead x 2: exhausted" in first.text
    assert first.message["Message-ID"] != second.message["Message-ID"]
    assert first.message["References"] == second.message["References"]
    assert second.message["Subject"].startswith("[detent] nights: Recovered: 2 dead runs")


async def test_a_mail_that_is_refused_is_tried_again_under_its_id(desk: AlertDesk, tmp_path: Path) -> None:
    async with mail_server(tmp_path, Authority().issue(), "none") as mailbox:
        mailbox.replies = ["451 later, please", "552 mailbox full"]
        email = {"type": "email", "host": "127.0.0.1", "port": mailbox.port, "tls": "none", "sender": "a@b.example"}
        await desk.rule(receiver={**email, "to": ["ops@example.com"]})
        await desk.dies(await desk.job("a"))
        await desk.passed()
        error = await desk.sql.fetchval("SELECT error FROM notices")
        assert (
            error
            == f"The mail server 127.0.0.1:{mailbox.port} did not take the mail: it answered with 451 later, please."
        )
        for _ in range(3):
            await desk.let_pass(HOUR)
            await desk.passed()
    (mail,) = mailbox.mails
    made = await desk.sql.fetchval(
        "SELECT notice FROM notices WHERE error IS NULL AND ended_at IS NOT NULL AND tries = 3"
    )
    assert mail.message["Message-ID"].startswith(f"<notice_{made}_")


@pytest.mark.parametrize("wrong", ["password", "authority", "no starttls"])
async def test_a_mail_server_that_cannot_be_used_is_named_with_the_reason(
    desk: AlertDesk, tmp_path: Path, wrong: str
) -> None:
    authority = Authority()
    tls: Literal["none", "starttls"] = "none" if wrong == "no starttls" else "starttls"
    async with mail_server(tmp_path, authority.issue(), tls) as mailbox:
        password = "not it, really" if wrong == "password" else PASSWORD
        email = {
            "type": "email", "host": "localhost", "port": mailbox.port, "sender": "detent@example.com",
            "to": ["ops@example.com"], "username": USER, "password": await desk.secret("smtp", password),
            "ca": Authority("Another").certificate if wrong == "authority" else authority.certificate,
        }  # fmt: skip
        await desk.rule(receiver=email)
        await desk.dies(await desk.job("a"))
        await desk.passed()
    error = await desk.sql.fetchval("SELECT error FROM notices WHERE ended_at IS NULL")
    expected = {
        "password": "it refused the login: 535",
        "authority": "its certificate is not trusted",
        "no starttls": "it does not offer STARTTLS",
    }
    assert expected[wrong] in error and password not in error and mailbox.mails == []


async def test_a_mail_server_that_does_not_listen_is_named_in_the_words_of_the_system(desk: AlertDesk) -> None:
    port = free_port()
    email = {"type": "email", "host": "127.0.0.1", "port": port, "tls": "none", "sender": "a@b.example"}
    await desk.rule(receiver={**email, "to": ["ops@example.com"]})
    await desk.dies(await desk.job("a"))
    await desk.passed()
    error = await desk.sql.fetchval("SELECT error FROM notices")
    assert error == f"The mail server 127.0.0.1:{port} could not be reached: connection refused."


async def test_pagerduty_gets_a_trigger_and_a_resolve_with_one_key(desk: AlertDesk) -> None:
    key = await desk.secret("pagerduty", ROUTING_KEY)
    async with pagerduty() as service:
        await desk.rule(receiver={"type": "pagerduty", "routing_key": key, "url": service.url}, recovered=False)
        job = await desk.job("charge", ("severity:critical",))
        await desk.dies(job, 2)
        await desk.passed()
        await desk.dies(job)
        await desk.passed()
        await desk.succeeds(job)
        await desk.passed()
        await desk.passed()
        await desk.rule("tried", receiver={"type": "pagerduty", "routing_key": key, "url": service.url})
        await desk.store.alert_rules.add_test("tried", _trial("tried"), tenant=1)
        await desk.passed()
    assert service.refused == []
    assert [event["event_action"] for event in service.events][:3] == ["trigger", "trigger", "resolve"]
    assert len({event["dedup_key"] for event in service.events[:3]}) == 1
    payload = service.events[0]["payload"]
    assert (payload["severity"], payload["group"], payload["class"]) == ("critical", "ops", "dead")
    assert payload["summary"] == "ops: 2 dead runs of the job charge."
    assert set(service.incidents.values()) == {"resolved"} and len(service.incidents) == 2


def _trial(name: str) -> dict[str, Any]:
    return trial_content(name, datetime.now(UTC))


async def test_a_refused_message_is_put_off_and_given_up_after_a_day(desk: AlertDesk, receiver: Receiver) -> None:
    receiver.answers = [500] * 3
    await desk.rule(receiver=webhook(receiver))
    await desk.dies(await desk.job("a"))
    await desk.passed()
    await desk.let_pass(HOUR)
    await desk.passed()
    assert len({one.headers["webhook-id"] for one in receiver.messages}) == 1
    await desk.sql.execute("UPDATE notices SET made_at = made_at - interval '25 hours'")
    for _ in range(2):
        await desk.let_pass(HOUR)
        await desk.passed()
    assert len(receiver.messages) == 3
    assert desk.metrics.notices == {"sent": 0, "failed": 2, "given_up": 1}
    (message,) = await desk.store.alert_rules.messages("ops", 10, tenant=1)
    assert (message.status, message.tries) == ("given_up", 3) and "answered with status 500" in str(message.error)


async def test_a_message_of_another_tenant_does_not_reach_a_private_address(
    desk: AlertDesk, receiver: Receiver, tmp_path: Path
) -> None:
    await desk.store.tenants.add("shop")
    shop = await desk.store.tenants.number("shop")
    assert shop is not None
    await desk.store.keys.add("admin", tenant=1)
    async with mail_server(tmp_path, Authority().issue(), "none") as mailbox:
        email = {"type": "email", "host": "127.0.0.1", "port": mailbox.port, "tls": "none", "sender": "a@b.example"}
        await desk.rule("mail", tenant=shop, receiver={**email, "to": ["ops@example.com"]})
        await desk.rule("hook", tenant=shop, receiver=webhook(receiver))
        for name in ("mail", "hook"):
            await desk.store.alert_rules.add_test(name, _trial(name), tenant=shop)
        messenger = Messenger(ClusterPolicies(desk.store.tenants))
        receivers = AlertReceivers(messenger, desk.sender._receivers._secrets, [])
        taken = await desk.store.alerts.take(10, HOUR)
        ends = [await receivers.deliver(notice) for notice in taken]
        assert [end.arrived for end in ends] == [False, False] and len(ends) == 2
        assert all("loopback" in end.error and "detent tenant allow shop" in end.error for end in ends)
        await desk.store.tenants.change("shop", {}, lambda _: [f"127.0.0.1:{mailbox.port}"])
        allowed = [await receivers.deliver(notice) for notice in taken]
        assert sorted(end.arrived for end in allowed) == [False, True] and len(mailbox.mails) == 1
        await messenger.close()
    assert receiver.messages == []


async def test_doctor_names_the_rule_whose_messages_do_not_arrive(desk: AlertDesk, receiver: Receiver) -> None:
    receiver.answers = [503]
    await desk.rule(receiver=webhook(receiver))
    read = partial(desk.store.database.fetch, PoolName.REQUEST, sql.notice.READ_FAILING, 100)
    assert list(check_notices((await read())[0])) == []
    await desk.dies(await desk.job("a"))
    await desk.passed()
    (found,) = check_notices((await read())[0])
    assert (found.status, found.found) == ("warn", "Not delivered yet: 1 notification.")
    assert "detent alert-rule messages ops" in found.advice and "answered with status 503" in found.advice


async def test_a_missed_deadline_that_a_rule_reports_needs_no_other_receiver(
    desk: AlertDesk, receiver: Receiver
) -> None:
    jobs = [await desk.job("before"), await desk.job("after")]
    for job in jobs:
        await desk.sql.execute(MISSED, job)
        await desk.passed()
        await desk.rule(f"rule-{job}", events=["deadline"], receiver=webhook(receiver))
    ends = await desk.sql.fetch("SELECT error FROM notices WHERE incident IS NOT NULL ORDER BY notice")
    assert [row["error"] for row in ends] == ["No receiver is configured: set notify_url.", None]
