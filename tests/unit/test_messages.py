"""What messages say, and their signatures."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from detent.domain.webhooks import signed
from detent.errors import UsageError
from detent.store.expectations import Notice
from detent.targets.messenger import check_address
from detent.upkeep.messages import body_of, id_of, read_secrets, sentence
from detent.upkeep.notices import Address

TICK = datetime(2026, 11, 15, 9, tzinfo=UTC)
JOB_ID = UUID("01a1debf-fe45-7743-9988-fc906f42c7e3")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def notice(**changes: Any) -> Notice:
    made = Notice(
        notice=7,
        event="missed",
        tries=1,
        age=timedelta(seconds=1),
        at=TICK + timedelta(minutes=11),
        incident=3,
        kind="finish",
        within=timedelta(minutes=10),
        tick=TICK,
        misses=1,
        opened_at=TICK + timedelta(minutes=10),
        closed_at=None,
        tenant="default",
        job_id=JOB_ID,
        job="report",
        url=None,
        format="webhook",
        tenant_number=1,
    )
    return made._replace(**changes)


def test_a_signature_is_the_one_of_the_specification() -> None:
    """The example that the specification of Standard Webhooks gives."""
    at = datetime.fromtimestamp(1614265330, UTC)
    body = b'{"test": 2432232314}'
    headers = signed("msg_p5jXN8AQM9LWM0D4loKWxJek", at, body, read_secrets(SECRET))
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330")


def test_while_a_secret_is_replaced_both_sign() -> None:
    other = base64.b64encode(b"x" * 32).decode()
    headers = signed("id", TICK, b"{}", read_secrets(f"{SECRET},whsec_{other}"))
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert "webhook-signature" not in signed("id", TICK, b"{}", [])


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_c2hvcnQ=", "not base64!", f"{SECRET},", "whsec_" + "A" * 100])
def test_a_secret_that_is_too_short_or_long_or_no_base64_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="notify_secret is not usable: give whsec_"):
        read_secrets(text)


def test_a_message_says_in_a_sentence_what_was_missed() -> None:
    assert sentence(notice()) == (
        "The job 'report' has not succeeded within 10 min of its tick at 2026-11-15 09:00:00 UTC."
    )
    assert sentence(notice(kind="start", within=timedelta(seconds=5), misses=3)) == (
        "The job 'report' did not start within 5 s of its tick at 2026-11-15 09:00:00 UTC, 3 times in a row."
    )
    assert sentence(notice(event="recovered")) == (
        "The job 'report' succeeds in time again. It had missed its deadline since 2026-11-15 09:10:00 UTC."
    )


def test_a_webhook_gets_a_document_and_slack_a_text() -> None:
    document = msgspec.json.decode(body_of(notice(), "webhook"))
    assert (document["type"], document["timestamp"]) == ("job.expectation.missed", "2026-11-15T09:10:00Z")
    assert document["data"] | {"message": ""} == {
        "incident": 3,
        "tenant": "default",
        "job": "report",
        "job_id": str(JOB_ID),
        "expectation": "finish",
        "within_seconds": 600.0,
        "scheduled_at": "2026-11-15T09:00:00Z",
        "misses": 1,
        "opened_at": "2026-11-15T09:10:00Z",
        "closed_at": None,
        "message": "",
    }
    assert msgspec.json.decode(body_of(notice(job="<!here> & co"), "slack")) == {
        "text": sentence(notice(job="&lt;!here&gt; &amp; co"))
    }


def test_the_secret_of_the_cluster_signs_nothing_for_other_tenants() -> None:
    address = Address("https://ours.example/", "slack", [b"secret"])
    assert address.of(notice()) == ("https://ours.example/", "slack", [b"secret"])
    own = notice(url="https://own.example/")
    assert address.of(own) == ("https://own.example/", "webhook", [b"secret"])
    assert address.of(own._replace(tenant_number=2)) == ("https://own.example/", "webhook", ())
    assert address.of(notice(tenant_number=2)) == ("https://ours.example/", "slack", [b"secret"])


def test_every_try_of_a_message_is_the_same_but_for_the_time_it_is_signed_at() -> None:
    first, later = notice(), notice(tries=2, age=timedelta(hours=2), at=notice().at + timedelta(hours=2, seconds=-1))
    assert id_of(first) == id_of(later) == "notice_7_20261115091059000000"
    assert body_of(first, "webhook") == body_of(later, "webhook")


def test_messages_of_two_databases_have_different_ids_although_both_count_from_one() -> None:
    assert id_of(notice()) != id_of(notice(age=timedelta(seconds=1, microseconds=1)))


def test_a_message_tells_when_the_event_was() -> None:
    closed = TICK + timedelta(hours=1)
    missed, recovered = notice(), notice(event="recovered", closed_at=closed)
    assert msgspec.json.decode(body_of(missed, "webhook"))["timestamp"] == "2026-11-15T09:10:00Z"
    assert msgspec.json.decode(body_of(recovered, "webhook"))["timestamp"] == "2026-11-15T10:00:00Z"


@pytest.mark.parametrize(
    "url", ["https://me:hidden@example.com/", "http://169.254.169.254/hidden", "https://a..b/hidden"]
)
def test_an_address_that_is_never_called_is_refused_without_telling_its_secret(url: str) -> None:
    with pytest.raises(UsageError, match=r"^notify_url is not usable: The ") as refused:
        check_address("notify_url", url)
    assert "hidden" not in str(refused.value)
