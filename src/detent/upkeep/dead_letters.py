"""Forwards dead runs to the topic of their job or tenant: any scheduler takes the ones that wait.

The run and its note that it is to be forwarded are written in one transaction, and the note is deleted after the broker
has acknowledged the message. A node that dies in between leaves it to the next one, which sends the message again with
the same key.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from detent.cluster.membership import Membership
from detent.domain.idempotency import templated_key
from detent.domain.identity import run_id
from detent.domain.job import TopicTarget
from detent.domain.masking import literal_mask
from detent.domain.run import Call, Failed, NotBegun, Succeeded
from detent.errors import DetentError
from detent.runtime.service import Loop
from detent.store import Store
from detent.store.dead_letter_topics import DeadLetter
from detent.targets.exceptions import describe
from detent.targets.text import instant_text
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics
from detent.worker.execute import Runner, execute
from detent.worker.secret_providers import SecretFault
from detent.worker.secrets import SecretValues

log = logger("dead-letters")

LOOK_EVERY = 5.0
SOONEST = 0.1
SENT_AT_ONCE = 100
TAKEN_FOR = timedelta(seconds=90)
ANSWER_SECONDS = 45.0
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 900.0
GIVEN_UP_AFTER = timedelta(days=7)


class DeadLetterForwarder:
    def __init__(
        self, store: Store, membership: Membership, send: Runner, secrets: SecretValues, metrics: Metrics
    ) -> None:
        """`send` is the runner of topic targets."""
        self._letters = store.dead_letter_topics
        self._membership = membership
        self._send = send
        self._secrets = secrets
        self._metrics = metrics
        self.loop = Loop("dead letters", self.tick)

    async def tick(self) -> float:
        while self._membership.trusted:
            letters = await self._letters.take(SENT_AT_ONCE, TAKEN_FOR)
            if not letters:
                break
            await self._forward(letters)
        soon = await self._letters.next_due()
        longest = LOOK_EVERY * random.uniform(0.8, 1.0)
        return longest if soon is None else min(max(soon, SOONEST), longest)

    async def _forward(self, letters: Sequence[DeadLetter]) -> None:
        """Finish all of them, even if the result of one cannot be recorded: a message that was sent stays sent."""
        ends = await asyncio.gather(*(self._forward_one(letter) for letter in letters), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end

    async def _forward_one(self, letter: DeadLetter) -> None:
        if letter.topic is None:  # removed since the run died
            await self._letters.end(letter)
            return
        error = await self._sent(letter, letter.topic)
        if error is None:
            self._metrics.dead_letters["forwarded"] += 1
            await self._letters.end(letter)
        elif letter.age > GIVEN_UP_AFTER:
            self._metrics.dead_letters["given_up"] += 1
            log.error("dead run not forwarded: given up", job=letter.job, run=str(run_id(letter.key)), error=error)
            await self._letters.end(letter)
        else:
            self._metrics.dead_letters["failed"] += 1
            pause = min(FIRST_PAUSE * 2.0 ** min(letter.tries - 1, 10), LONGEST_PAUSE) * random.uniform(0.5, 1)
            if letter.tries == 1:  # doctor and metrics report it from then on
                log.warning("dead run not forwarded yet", job=letter.job, run=str(run_id(letter.key)), error=error)
            await self._letters.put_off(letter, timedelta(seconds=pause), error)

    async def _sent(self, letter: DeadLetter, topic: str) -> str | None:
        """Why the broker does not have the message; None: it has."""
        try:
            target = msgspec.json.decode(topic, type=TopicTarget)
            async with asyncio.timeout(ANSWER_SECONDS):
                call = await self._secrets.fill_target(call_of_letter(letter, target))
                outcome = await execute(call, {"topic": self._send})
        except msgspec.MsgspecError as error:
            return f"The dead_letter_topic cannot be read by this version: {error}."
        except TimeoutError:
            return f"The broker did not acknowledge the message within {ANSWER_SECONDS:g} s."
        except (SecretFault, DetentError) as error:
            return str(error)
        except Exception as error:  # it has to be put off and given up like any other
            log.exception("dead run not forwarded", job=letter.job, run=str(run_id(letter.key)))
            return f"The message could not be made: {describe(error)}"
        match outcome:
            case Succeeded():
                return None
            case Failed(error=sentence) | NotBegun(why=sentence):
                return sentence
            case _:
                return "The message was not sent."


def call_of_letter(letter: DeadLetter, target: TopicTarget) -> Call:
    """The call that sends it. Its key differs from the one of the run, whose own message a broker may have under it;
    with the token, a run that is revived and dies again is another message."""
    key = templated_key(letter.job_id, letter.job, letter.template, letter.timezone, letter.key)
    return Call(
        job_id=str(letter.job_id),
        job=letter.job,
        run_id=str(run_id(letter.key)),
        scheduled_at=letter.key.scheduled_at,
        attempt=letter.attempt,
        idempotency_key=f"{key}:dead:{letter.token}",
        token=letter.token,
        payload=document_of(letter, key),
        target=target,
        timeout_seconds=ANSWER_SECONDS,
        tenant=letter.tenant,
        mask=literal_mask(target),
    )


def document_of(letter: DeadLetter, key: str) -> dict[str, Any]:
    return {
        "run_id": str(run_id(letter.key)),
        "job": letter.job,
        "job_id": str(letter.job_id),
        "scheduled_at": instant_text(letter.key.scheduled_at),
        "finished_at": instant_text(letter.finished_at),
        "idempotency_key": key,
        "attempt": letter.attempt,
        "reason": letter.reason,
        "error": letter.error,
        "payload": None if letter.payload is None else msgspec.Raw(letter.payload.encode()),
    }
