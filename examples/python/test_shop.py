"""The shop's schedules, tasks and retries, tested without waiting: no database, no server, a clock that the test
moves."""

import shop


def test_the_report_runs_once_on_the_night_without_half_past_two() -> None:
    with shop.app.test(start="2026-03-07T12:00:00Z") as t:
        t.advance(days=3)
    reports = t.runs_of("nightly-report")
    assert [run.scheduled_at.isoformat() for run in reports] == [
        "2026-03-08T07:00:00+00:00",  # 02:30 does not exist that night: the clocks go from 02:00 to 03:00
        "2026-03-09T06:30:00+00:00",
        "2026-03-10T06:30:00+00:00",
    ]
    assert reports[0].result == "daily report for 2026-03-08"


def test_orders_are_tried_again_under_the_same_key() -> None:
    keys = []

    class AwayTwice(shop.Supplier):
        async def orders(self, key: str) -> list[str]:
            keys.append(key)
            if len(keys) < 3:
                raise ConnectionError("the supplier is away")
            return ["order 17", "order 17"]

    with shop.app.override(shop.supplier, AwayTwice), shop.app.test(start="2026-06-01T08:00:00Z") as t:
        t.advance(minutes=20)
        (run,) = t.runs_of("import-orders")
        (mail,) = t.runs_of("send-mail")
    assert (run.status, run.attempt, run.result) == ("succeeded", 3, 2)
    assert keys == [run.idempotency_key] * 3
    assert [(attempt.at - run.scheduled_at).total_seconds() for attempt in run.attempts] == [0, 10, 30]
    assert mail.result == "order 17 → ada@example.com"


def test_a_mail_that_is_refused_is_sent_later() -> None:
    with shop.app.test() as t:
        handle = shop.send_mail.enqueue_sync(to="bob@slow.example")
        t.run_pending()
        assert handle.status() == "retrying"
        t.advance(minutes=5)
        assert handle.result() == "Your order → bob@slow.example"
        assert t.runs[0].logs[-1].startswith("took ")


def test_an_invoice_needs_a_database() -> None:
    with shop.app.test() as t:
        run = t.trigger("weekly-invoice")
    assert run.status == "retrying"
    assert "app.test(connection=connection)" in str(run.error)
