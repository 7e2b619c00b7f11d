"""One publisher for all runs of a tenant that send to one server: messages that come while a batch is under way form
the next one.

A batch ends when its publisher has answered, when no run waits for it any more, or after `ANSWER_SECONDS`. A run that
is cancelled or times out leaves its batch; the others go on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from detent.domain.run import Failed
from detent.domain.target_access import TargetFault
from detent.runtime.clock import monotonic
from detent.runtime.service import Failing, start_shared
from detent.targets.breaker import Unanswered
from detent.targets.http_failures import reason_of
from detent.targets.text import one_line
from detent.targets.topics.dial import GuardedDial
from detent.targets.topics.publisher import Answer, BrokerRefusedError, Publisher, TopicMessage
from detent.telemetry.log import logger

log = logger("topics")

MOST_MESSAGES = 1000
MOST_BYTES = 4 * 1024 * 1024
ANSWER_SECONDS = 30.0
CLOSE_SECONDS = 5.0

Verdict = Answer | TargetFault


class _Sending:
    """A message, and the answer that its run waits for. A run that leaves cancels it."""

    __slots__ = ("answer", "batch", "message")

    def __init__(self, message: TopicMessage, answer: asyncio.Future[Verdict]) -> None:
        self.message = message
        self.answer = answer
        self.batch: _Batch | None = None


class _Batch:
    """Messages that are being published, and how many runs still wait for them."""

    def __init__(self, sendings: Sequence[_Sending], task: asyncio.Task[Sequence[Answer]]) -> None:
        self._task = task
        self._waiting = len(sendings)
        for sending in sendings:
            sending.batch = self

    def one_left(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._task.cancel()


class SharedPublisher:
    """`open_it` makes a publisher that connects with `dial`. `peer` is the server as error sentences name it."""

    def __init__(self, open_it: Callable[[], Publisher], dial: GuardedDial, peer: str) -> None:
        self._open = open_it
        self._dial = dial
        self._peer = peer
        self._publisher: Publisher | None = None
        self._failing = Failing()
        self._failure: Verdict | None = None
        self._waiting: deque[_Sending] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._used_at = monotonic()
        self.retired = False
        """It was idle: new messages go to another one."""

    async def publish(self, message: TopicMessage) -> Verdict:
        sending = _Sending(message, self._loop.create_future())
        self._waiting.append(sending)
        if self._sending is None:
            self._sending = start_shared(self._send_all())
        try:
            return await sending.answer
        except asyncio.CancelledError:
            if sending.batch is not None:
                sending.batch.one_left()
            raise

    def is_idle_since(self, before: float) -> bool:
        return self._sending is None and self._used_at <= before

    async def close(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await publisher.close()
        except Exception as error:  # its server may be gone
            log.info("a publisher was not closed cleanly", server=self._peer, error=one_line(str(error)))

    async def _send_all(self) -> None:
        try:
            while part := self._next_part():
                await self._answer(part)
        finally:
            self._sending = None
            self._used_at = monotonic()

    def _next_part(self) -> list[_Sending]:
        """Messages whose runs have not left, bounded in number and bytes; a message of any size is sent."""
        part: list[_Sending] = []
        waiting, size = self._waiting, 0
        while waiting and len(part) < MOST_MESSAGES:
            sending = waiting[0]
            if not sending.answer.done():
                size += len(sending.message.body)
                if part and size > MOST_BYTES:
                    break
                part.append(sending)
            waiting.popleft()
        return part

    async def _answer(self, part: Sequence[_Sending]) -> None:
        """Every run gets an answer or an error, also where there are too few answers."""
        try:
            for sending, verdict in zip(part, await self._send_part(part), strict=True):
                if not sending.answer.done():
                    sending.answer.set_result(verdict)
        except Exception as error:
            for sending in part:
                if not sending.answer.done():
                    sending.answer.set_exception(error)

    async def _send_part(self, part: Sequence[_Sending]) -> Sequence[Verdict]:
        if self._failure is not None and self._failing.pausing:
            return [self._failure] * len(part)
        try:
            answers = await self._published(part)
        except asyncio.CancelledError:
            await self.close()
            if _is_cancelled():
                raise
            return [_LEFT] * len(part)
        except Exception as error:
            await self.close()
            return [self._failed(error)] * len(part)
        self._failing.over()
        self._failure = None
        return answers

    async def _published(self, part: Sequence[_Sending]) -> Sequence[Answer]:
        if self._publisher is None:
            self._publisher = self._open()
        task = asyncio.create_task(self._publisher_answers([sending.message for sending in part]))
        _Batch(part, task)
        try:
            return await task
        finally:
            if not task.done():  # this process ends
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _publisher_answers(self, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        assert self._publisher is not None
        try:
            async with asyncio.timeout(ANSWER_SECONDS) as limit:
                return await self._publisher.publish(messages)
        except TimeoutError:
            if not limit.expired():
                raise
        sentence = f"{self._peer} did not acknowledge the message within {ANSWER_SECONDS:g} s."
        await self.close()
        return [Unanswered(Failed(sentence), sent=True)] * len(messages)

    def _failed(self, error: Exception) -> Verdict:
        """Until the pause after it is over, further messages get the same answer without another try: so many runs
        neither flood a server that restarts nor lock an account."""
        if self._dial.refusal is not None:  # the rules may change, and asking costs nothing
            return self._dial.refusal
        failure = self._failed_with(error)
        sentence = failure.failed.error if isinstance(failure, Unanswered) else failure.error
        if self._failing.note(sentence):
            log.warning("messages not sent", server=self._peer, error=sentence)
        self._failure = failure
        return failure

    def _failed_with(self, error: Exception) -> Failed | Unanswered:
        match error:
            case BrokerRefusedError():
                return Failed(str(error), retryable=False)
            case OSError():
                failed = Failed(f"No connection to {self._peer} could be made: {reason_of(error)}.")
                return Unanswered(failed, sent=False)
            case _:
                log.error("a publisher failed", server=self._peer, exc_info=error)
                return Failed(f"The message to {self._peer} was not sent: {reason_of(error)}.")


_LEFT = Failed("The run did not wait for the answer of the broker.")


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
