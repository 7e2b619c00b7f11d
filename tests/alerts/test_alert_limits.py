"""What one rule, one alert or many events cannot do to others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from detent.domain import alert_events
from detent.store.alerts import AlertStore
from detent.upkeep import alerts
from detent.upkeep.alert_messages import content_of
from tests.alerts.desk import AlertDesk
from tests.alerts.test_alert_kinds import has_to_catch_up
from tests.observability.receiver import Receiver

NOWHERE = {"type": "slack", "url": "http://127.0.0.1:9/"}


async def count(desk: AlertDesk, table: str) -> int:
    return int(await desk.sql.fetchval(f"SELECT count(*) FROM {table}"))


async def change_definition(desk: AlertDesk, name: str, field: str, value: str) -> None:
    """As another version, or another node, would have written it."""
    await desk.sql.execute(
        "UPDATE alert_rules SET definition = definition || jsonb_build_object($2::text, $3::jsonb) WHERE name = $1",
        name,
        field,
        value,
    )


async def test_a_catch_up_of_many_jobs_is_counted_once(desk: AlertDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_events, "MOST_JOBS", 2)
    await desk.rule(events=["catch_up"], receiver=NOWHERE)
    for name in ("a", "b", "c", "d"):
        await has_to_catch_up(desk, await desk.job(name))
    for _ in range(4):
        await desk.look()
    row = await desk.sql.fetchrow("SELECT events, untracked, messages FROM alerts")
    assert tuple(row) == (4 * 1234, 2 * 1234, 1)


@pytest.mark.parametrize("why", ["suspended", "newer"])
async def test_events_of_a_rule_that_is_not_served_now_stay(desk: AlertDesk, why: str) -> None:
    await desk.store.tenants.add("shop")
    shop = await desk.store.tenants.number("shop")
    assert shop is not None
    await desk.rule(tenant=shop, receiver=NOWHERE)
    await desk.dies(await desk.job("a", tenant=shop))
    if why == "suspended":
        await desk.sql.execute("UPDATE tenants SET suspended_at = now() WHERE tenant = $1", shop)
    else:
        await change_definition(desk, "ops", "of_a_newer_version", "true")
    await desk.look()
    assert await count(desk, "alert_events") == 1
    await desk.sql.execute("UPDATE alert_rules SET events = '{}'")
    await desk.look()
    assert await count(desk, "alert_events") == 0


async def test_a_zone_that_the_leader_does_not_know_stops_no_message(desk: AlertDesk, receiver: Receiver) -> None:
    hook = {"type": "webhook", "url": receiver.url}
    await desk.rule("far", receiver=hook)
    hours = '{"start": "00:00", "end": "23:59", "timezone": "Mars/Olympus"}'
    await change_definition(desk, "far", "quiet_hours", hours)
    await desk.rule("near", receiver=hook)
    await desk.dies(await desk.job("a"))
    await desk.passed()
    assert sorted(one.document["data"]["rule"] for one in receiver.messages) == ["far", "near"]


@pytest.mark.parametrize("fails", ["in Python", "in the database"])
async def test_an_alert_whose_message_cannot_be_made_is_put_off_alone(
    desk: AlertDesk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    hook = {"type": "webhook", "url": receiver.url}
    for name in ("bad", "good"):
        await desk.rule(name, receiver=hook)
    await desk.dies(await desk.job("a"))

    def content(rule: str, *others: Any) -> dict[str, Any]:
        if rule == "bad" and fails == "in Python":
            raise ValueError("no words")
        return {**content_of(rule, *others), **({"text": "\0"} if rule == "bad" else {})}

    monkeypatch.setattr(alerts, "content_of", content)
    await desk.passed()
    assert [one.document["data"]["rule"] for one in receiver.messages] == ["good"]
    assert await count(desk, "alerts WHERE messages = 0 AND flush_at > now()") == 1
    monkeypatch.undo()
    await desk.let_pass(timedelta(minutes=1))
    await desk.passed()
    assert sorted(one.document["data"]["rule"] for one in receiver.messages) == ["bad", "good"]


async def test_a_pass_makes_messages_however_much_there_is_to_note_and_to_look_at(
    desk: AlertDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    real = AlertStore.check_jobs

    async def endless(store: AlertStore, *args: Any) -> bool:
        calls.append("check")
        if len(calls) > 1_000:
            raise AssertionError("the pass has no end")
        await real(store, *args)
        return True

    monkeypatch.setattr(AlertStore, "check_jobs", endless)
    monkeypatch.setattr(alerts, "EVENTS_AT_ONCE", 1)
    await desk.rule(receiver=NOWHERE)
    job = await desk.job("a")
    for _ in range(alerts.MOST_BATCHES + 5):
        await desk.dies(job)
    await desk.look()
    assert len(calls) == alerts.MOST_BATCHES
    assert (await count(desk, "alert_events"), await count(desk, "notices")) == (5, 1)


async def test_old_messages_of_an_open_alert_are_purged(desk: AlertDesk) -> None:
    await desk.rule(receiver=NOWHERE)
    job = await desk.job("a")
    for _ in range(3):
        await desk.dies(job)
        await desk.look()
    first, second, third = [row["notice"] for row in await desk.sql.fetch("SELECT notice FROM notices ORDER BY notice")]
    ended = "UPDATE notices SET ended_at = now() - $2::integer * interval '1 day' WHERE notice = $1"
    await desk.sql.execute(ended, first, 31)
    await desk.sql.execute(ended, second, 29)
    assert (await desk.store.alerts.purge(30), await desk.store.alerts.purge(30)) == (1, 0)
    left = [row["notice"] for row in await desk.sql.fetch("SELECT notice FROM notices ORDER BY notice")]
    assert left == [second, third] and await count(desk, "alerts") == 1
    await desk.sql.execute("UPDATE alerts SET closed_at = now() - interval '31 days'")
    assert await desk.store.alerts.purge(30) == 1
    assert (await count(desk, "alerts"), await count(desk, "notices")) == (0, 0)


@pytest.mark.parametrize(
    "value", ["xoxb-key: of-something", "token@very.secret", "http:tokenvalue", "https://user:key@a.example/"]
)
async def test_no_part_of_a_secret_that_is_no_url_is_shown(desk: AlertDesk, value: str) -> None:
    url = await desk.secret("slack-url", value)
    await desk.rule(receiver={"type": "slack", "url": url})
    await desk.dies(await desk.job("a"))
    await desk.passed()
    error = await desk.sql.fetchval("SELECT error FROM notices")
    expected = "The secret 'slack-url' could not be used: it is no URL that can be called; set one with https://."
    assert error == expected
