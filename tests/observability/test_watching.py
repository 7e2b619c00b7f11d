"""Jobs that are not as expected, from a real tick to a real message; and signs of life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from detent.cluster.operations import ClusterOperations
from detent.domain.job import HttpTarget, JobSpec
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.domain.target_access import PRIVATE_TOO, PUBLIC_ONLY
from detent.jobs import JobOperations
from detent.runtime.envelope import MasterKeys
from detent.store import Store
from detent.targets import messenger as messengers
from detent.targets.messenger import Message, Messenger
from detent.targets.policies import FixedPolicy
from detent.telemetry.metrics import Metrics
from detent.upkeep import expectations as watch
from detent.upkeep import housekeeping
from detent.upkeep import notices as sending
from detent.upkeep import pings as ping
from detent.worker.secrets import SecretValues
from tests.observability.receiver import SECRET, Receiver, receiving, silence
from tests.support.sessions import StartSession
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens every few seconds happens several times in one."""
    monkeypatch.setattr(housekeeping, "UPKEEP_EVERY", 0.2)
    monkeypatch.setattr(watch, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(sending, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(sending, "SWEEP_EVERY", 0.3)
    monkeypatch.setattr(sending, "TAKEN_FOR", timedelta(seconds=2))


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


@pytest.fixture
async def messenger() -> AsyncIterator[Messenger]:
    made = Messenger(FixedPolicy(PRIVATE_TOO))
    yield made
    await made.close()


class Target:
    """Fails for as long as it is told to."""

    def __init__(self) -> None:
        self.broken = True

    async def __call__(self, call: Call) -> Outcome:
        return Failed("broken", retryable=False) if self.broken else Succeeded()


async def add(store: Store, **fields: Any) -> None:
    # Long enough for a run that does not fail, also on a machine that has much else to do.
    values = {"schedule": "every 1s", "name": "report", "expect_finish_within": 2, **fields}
    await JobOperations(store).registration.add([JobSpec(target=HttpTarget(url="http://127.0.0.1:9/"), **values)])


async def test_a_job_that_fails_is_reported_once_and_so_is_its_recovery(
    store: Store, start: StartSession, receiver: Receiver, messenger: Messenger, look: Any
) -> None:
    target, metrics = Target(), Metrics()
    settings = {"notify_url": f"{receiver.url}/hook", "notify_secret": SECRET, "messenger": messenger}
    await start(target, metrics=metrics, **settings)
    await add(store, notify_after=2)
    await until(lambda: metrics.expectations_missed["finish"] >= 3, 20, "three misses")
    target.broken = False
    await until(lambda: len(receiver.messages) >= 2, 40, "the recovery")
    missed, recovered = receiver.messages[:2]
    assert receiver.events()[:2] == ["missed", "recovered"]
    assert missed.authentic and recovered.authentic
    assert missed.document["data"]["misses"] == 2
    assert missed.document["data"]["job"] == recovered.document["data"]["job"] == "report"
    assert missed.headers["webhook-id"] != recovered.headers["webhook-id"]
    sent = "SELECT count(*) >= 2 FROM notices WHERE ended_at IS NOT NULL AND error IS NULL"
    await until(lambda: look.fetchval(sent), 10, "it to be noted")
    assert metrics.notices["sent"] >= 2


async def test_a_run_that_no_node_starts_is_reported_and_so_is_its_start(
    store: Store, start: StartSession, receiver: Receiver, messenger: Messenger
) -> None:
    """No worker: the run waits. Then there is one."""
    settings = {"notify_url": receiver.url, "messenger": messenger}
    await start(roles=("scheduler",), **settings)
    await add(store, expect_start_within=2, expect_finish_within=None, schedule={"every": "3s"})
    await until(lambda: receiver.messages, 20, "the miss")
    assert receiver.messages[0].document["data"]["expectation"] == "start"
    assert "webhook-signature" not in receiver.messages[0].headers
    await start(roles=("worker",), **settings)
    await until(lambda: receiver.events()[:2] == ["missed", "recovered"], 40, "the recovery")


async def test_what_two_nodes_see_is_sent_once_and_what_was_refused_is_sent_again_under_its_id(
    store: Store, start: StartSession, receiver: Receiver, messenger: Messenger, look: Any
) -> None:
    receiver.answers = [503, 500]
    target = Target()
    settings = {"notify_url": receiver.url, "notify_secret": SECRET, "messenger": messenger}
    first = await start(target, **settings)
    await start(target, lease_ttl_seconds=30, **settings)  # a busy machine must not cost it its place
    await add(store)
    await until(lambda: receiver.messages, 20, "the first try")
    await first.abandon()  # as one that lost its place: the other goes on
    await until(lambda: look.fetchval("SELECT bool_and(ended_at IS NOT NULL) FROM notices"), 30, "it to be sent")
    assert len({message.headers["webhook-id"] for message in receiver.messages}) == 1
    tries, misses = len(receiver.messages), await look.fetchval("SELECT misses FROM expectations")
    await until(lambda: look.fetchval("SELECT misses > $1 + 1 FROM expectations", misses), 30, "more misses")
    assert len(receiver.messages) == tries >= 3


async def test_deadlines_are_evaluated_while_a_message_waits_for_an_answer(
    store: Store, start: StartSession, messenger: Messenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messengers, "ANSWER_SECONDS", 300)
    metrics = Metrics()
    async with silence() as nobody:
        session = await start(Target(), metrics=metrics, messenger=messenger, notify_url=nobody.url)
        await add(store)
        await until(nobody.asked.is_set, 20, "the message")
        missed = metrics.expectations_missed["finish"]
        await until(lambda: metrics.expectations_missed["finish"] > missed + 1, 20, "more misses")
        await session.close(0)


async def test_a_node_that_lost_its_membership_evaluates_and_sends_nothing_and_does_not_spin(
    store: Store, start: StartSession, receiver: Receiver, messenger: Messenger, look: Any
) -> None:
    session = await start(Target(), messenger=messenger)
    await add(store)
    await until(lambda: look.fetchval("SELECT count(*) > 0 FROM notices"), 20, "a message")
    await session.abandon()
    await look.execute("UPDATE notices SET ended_at = NULL, due_at = now(); UPDATE expectations SET check_at = now()")
    session.membership.lose("a test")
    address = sending.Address(receiver.url, "webhook", [])
    sender = sending.NoticeSender(
        store, session.membership, messenger, address, SecretValues(store.secrets, MasterKeys()), Metrics()
    )
    judge = watch.ExpectationWatch(store, session.membership, lambda: [0], Metrics(), sender.loop.wake)
    assert await judge.tick() > 0 and await sender.tick() > 0
    assert receiver.messages == []


async def test_a_job_may_have_its_own_address_and_slack_gets_a_text(
    store: Store, start: StartSession, receiver: Receiver, messenger: Messenger
) -> None:
    await start(Target(), messenger=messenger, notify_url="http://127.0.0.1:9/nobody")
    await add(store, notify_url=f"{receiver.url}/services/T0/B0/secret", notify_format="slack")
    await until(lambda: receiver.messages, 20, "the message")
    (message,) = receiver.messages
    assert message.path == "/services/T0/B0/secret"
    assert message.document["text"].startswith("The job 'report' has not succeeded within 2 s of its tick at ")


@pytest.mark.parametrize("why", ["private", "redirect", "nowhere"])
async def test_a_message_that_must_not_or_cannot_go_anywhere_is_given_up(
    store: Store, start: StartSession, receiver: Receiver, messenger: Messenger, look: Any, why: str
) -> None:
    receiver.answers = [302] * 10
    guarded = Messenger(FixedPolicy(PUBLIC_ONLY))
    url = None if why == "nowhere" else f"{receiver.url}/secret"
    await start(Target(), messenger=guarded if why == "private" else messenger, notify_url=url)
    await add(store, notify_url=url if why == "private" else None)
    error = await until(lambda: look.fetchval("SELECT error FROM notices WHERE ended_at IS NOT NULL"), 20)
    expected = {
        "private": "a loopback address",
        "redirect": "redirects are not followed",
        "nowhere": "No receiver is configured",
    }
    assert expected[why] in error
    assert "secret" not in error
    assert [message.path for message in receiver.messages] == (["/secret"] if why == "redirect" else [])
    await guarded.close()


async def test_one_node_of_several_sends_signs_of_life_while_ticks_are_not_held(
    store: Store, start: StartSession, receiver: Receiver, messenger: Messenger, look: Any
) -> None:
    settings = {"heartbeat_url": f"{receiver.url}/alive", "heartbeat_seconds": 1, "messenger": messenger}
    sessions = [await start(**settings) for _ in range(2)]
    await until(lambda: len(receiver.messages) >= 2, 20, "two signs of life")
    took_turns = await look.fetchval("SELECT count(*) FROM turns WHERE task = $1", ping.TASK)
    assert took_turns == 1
    assert {(message.method, message.path) for message in receiver.messages} == {("GET", "/alive")}
    await ClusterOperations(store).pause_ticks("a test", "to be silent")
    await until(lambda: all(session.membership.held for session in sessions), 20, "the hold to be known")
    asked = ping.Ping(store, sessions[0].membership, messenger, f"{receiver.url}/asked", 0.01)
    for _ in range(3):
        await asked.tick()
    assert [message for message in receiver.messages if message.path == "/asked"] == []
    await ClusterOperations(store).resume_ticks()
    await until(lambda: asked_again(asked, receiver), 20, "a sign of life")


async def asked_again(sender: ping.Ping, receiver: Receiver) -> bool:
    await sender.tick()
    return any(message.path == "/asked" for message in receiver.messages)


async def test_a_message_that_is_never_answered_does_not_hold_up_the_rest(messenger: Messenger) -> None:
    async with silence() as nobody, receiving() as other:
        sending_one = asyncio.create_task(messenger.send(Message("notice", b"{}"), nobody.url))
        await until(nobody.asked.is_set, 20, "the first message")
        assert (await messenger.send(Message("notice", b"{}"), other.url)).arrived
        sending_one.cancel()
        await asyncio.gather(sending_one, return_exceptions=True)
