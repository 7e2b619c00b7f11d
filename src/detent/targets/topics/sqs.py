"""Messages to queues of SQS, by its JSON API.

Up to ten messages travel in one request, and requests are concurrent, but for those of one message group of a FIFO
queue: they keep their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from detent.domain.run import Failed
from detent.domain.topics import is_sqs_region
from detent.runtime.aws_credentials import MachineIdentity
from detent.runtime.aws_signature import AwsCredentials, signed_headers
from detent.targets.breaker import Unanswered
from detent.targets.text import one_line
from detent.targets.topics.http_service import ServiceAnswer, UnansweredError, failure_of_service, requests_to
from detent.targets.topics.publisher import Answer, BrokerAddress, BrokerRefusedError, Dial, Receipt, TopicMessage
from detent.targets.topics.sqs_messages import batches_of, entry_of, fits
from detent.version import __version__

DEFAULT_REGION = "us-east-1"
THROTTLED_PAUSE_SECONDS = 1.0
NO_CREDENTIALS = (
    "The target has no credentials for SQS: give credentials with the access key id as username and the secret access "
    "key as password."
)

_THROTTLING = ("Throttl", "TooManyRequests", "RequestLimitExceeded", "SlowDown", "KmsThrottled")
# With such keys nothing at all can be sent. Other refusals may concern one queue.
_UNKNOWN_CLIENT = ("InvalidClientTokenId", "SignatureDoesNotMatch", "UnrecognizedClient", "InvalidAccessKeyId")

Entry = dict[str, Any]


class QueueRefusedError(Exception):
    """SQS refused a request, which answers every message of it."""

    def __init__(self, answer: Failed | Unanswered) -> None:
        super().__init__()
        self.answer = answer


class _SentBatch(NamedTuple):
    """The messages of a request, by their numbers, and the task that sends it."""

    numbers: list[int]
    task: asyncio.Task[dict[int, Answer]]


def open_publisher(address: BrokerAddress, dial: Dial) -> SqsPublisher:
    return SqsPublisher(address, dial)


class SqsPublisher:
    def __init__(self, address: BrokerAddress, dial: Dial) -> None:
        url = address.url
        self._region = url.raw_host or "" if is_sqs_region(url) else url.query.get("region", DEFAULT_REGION)
        self._requests = requests_to(address, dial)
        delay = url.query.get("delay_seconds")
        self._delay = int(delay) if delay else None
        self._credentials = _Credentials(address)
        self._queues: dict[str, str] = {}

    async def publish(self, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        topics: dict[str, list[int]] = {}
        for number, message in enumerate(messages):
            topics.setdefault(message.topic, []).append(number)
        queues = await asyncio.gather(*(self._queue_url(topic) for topic in topics))
        answers: dict[int, Answer] = {}
        sending: list[_SentBatch] = []
        for (topic, numbers), queue in zip(topics.items(), queues, strict=True):
            if not isinstance(queue, str):
                answers.update(dict.fromkeys(numbers, queue))
                continue
            entries = []
            for number in numbers:
                fault = _body_fault(messages[number])
                if fault is None:
                    entries.append(entry_of(number, messages[number], fifo=_is_fifo(topic), delay=self._delay))
                else:
                    answers[number] = Failed(fault, retryable=False)
            sending += self._start(queue, entries)
        answers.update(await _answers_of(sending))
        return [answers[number] for number in range(len(messages))]

    async def _queue_url(self, topic: str) -> str | Failed | Unanswered:
        """Of a name; a topic that is a URL already is used as it is. Requests go to the host of the target anyway."""
        if "://" in topic:
            return topic
        known = self._queues.get(topic)
        if known is None:
            try:
                answer = await self._call("GetQueueUrl", {"QueueName": topic})
            except QueueRefusedError as error:
                return error.answer
            except UnansweredError as error:
                return Unanswered(Failed(str(error)), sent=False)
            known = self._queues[topic] = answer["QueueUrl"]
        return known

    def _start(self, queue: str, entries: Sequence[Entry]) -> Iterator[_SentBatch]:
        last_of: dict[str, asyncio.Task[dict[int, Answer]]] = {}
        for batch in batches_of(entries):
            groups = {entry["MessageGroupId"] for entry in batch if "MessageGroupId" in entry}
            earlier = [last_of[group] for group in groups if group in last_of]
            task = asyncio.create_task(self._send(queue, batch, earlier))
            last_of.update(dict.fromkeys(groups, task))
            yield _SentBatch([int(entry["Id"]) for entry in batch], task)

    async def _send(
        self, queue: str, batch: list[Entry], earlier: Sequence[asyncio.Task[dict[int, Answer]]]
    ) -> dict[int, Answer]:
        if earlier:
            await asyncio.wait(earlier)
        numbers = [int(entry["Id"]) for entry in batch]
        try:
            answer = await self._call("SendMessageBatch", {"QueueUrl": queue, "Entries": batch})
        except QueueRefusedError as error:
            self._queues = {name: url for name, url in self._queues.items() if url != queue}  # it may be a new one now
            return dict.fromkeys(numbers, error.answer)
        except UnansweredError as error:
            return dict.fromkeys(numbers, Unanswered(Failed(str(error)), sent=True))
        return _answers(self._requests.peer, answer, numbers)

    async def _call(self, action: str, document: dict[str, Any]) -> Any:
        credentials = await self._credentials.read()
        body = msgspec.json.encode(document)
        origin = self._requests.origin
        headers = {
            "Host": origin.authority if origin.explicit_port else str(origin.raw_host),
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"AmazonSQS.{action}",
            "User-Agent": f"detent/{__version__}",
        }
        signed = signed_headers(
            headers, body, credentials, region=self._region, service="sqs", at=datetime.now(UTC)
        )  # fmt: skip
        answer = await self._requests.post("/", body, signed)
        if answer.status != 200:
            raise _refusal(self._requests.peer, answer)
        return msgspec.json.decode(answer.body)

    async def close(self) -> None:
        await self._requests.close()


async def _answers_of(sending: Sequence[_SentBatch]) -> dict[int, Answer]:
    """Of all batches. Raises what a batch raised if nothing was sent at all."""
    ends = await asyncio.gather(*(batch.task for batch in sending), return_exceptions=True)
    errors = [end for end in ends if isinstance(end, BaseException)]
    if errors and len(errors) == len(ends):
        raise errors[0]
    answers: dict[int, Answer] = {}
    for batch, end in zip(sending, ends, strict=True):
        if isinstance(end, BaseException):
            failed = Failed(f"The message was not sent: {end}", retryable=not isinstance(end, BrokerRefusedError))
            answer = Unanswered(failed, sent=False) if isinstance(end, OSError) else failed
            answers.update(dict.fromkeys(batch.numbers, answer))
        else:
            answers.update(end)
    return answers


class _Credentials:
    """Those of the target; or those of the machine, where the tenant may use them."""

    def __init__(self, address: BrokerAddress) -> None:
        self._given: AwsCredentials | None = None
        if address.username and address.password:
            self._given = AwsCredentials(address.username, address.password)
        self._ambient = address.ambient and not address.username and not address.password
        self._machine = MachineIdentity()

    async def read(self) -> AwsCredentials:
        if self._given is not None:
            return self._given
        if not self._ambient:
            raise QueueRefusedError(Failed(NO_CREDENTIALS, retryable=False))
        try:
            found = await self._machine.credentials()
        except ImportError:
            raise QueueRefusedError(
                Failed(f"{NO_CREDENTIALS} Those of the machine need `pip install 'detent[sqs]'`.", retryable=False)
            ) from None
        if found is None:
            raise QueueRefusedError(Failed(f"{NO_CREDENTIALS} The machine of the worker has none.", retryable=False))
        return found


def _is_fifo(topic: str) -> bool:
    return topic.endswith(".fifo")


def _body_fault(message: TopicMessage) -> str | None:
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        return "The message is not UTF-8 text, and SQS takes nothing else."
    if text and not fits(text):
        return "The message contains a control character that SQS does not take; remove it from the payload."
    return None


def _answers(peer: str, answer: Any, numbers: Sequence[int]) -> dict[int, Answer]:
    found: dict[int, Answer] = {}
    for entry in answer.get("Successful") or ():
        facts = {"message_id": entry["MessageId"], "sequence_number": entry.get("SequenceNumber")}
        found[int(entry["Id"])] = Receipt({name: value for name, value in facts.items() if value is not None})
    for entry in answer.get("Failed") or ():
        code = str(entry.get("Code", ""))
        throttled = _is_throttling(code)
        found[int(entry["Id"])] = Failed(
            f"{peer} refused the message: {one_line(str(entry.get('Message') or code)).rstrip('.')}.",
            retryable=throttled or not entry.get("SenderFault", False),
            retry_after=THROTTLED_PAUSE_SECONDS if throttled else None,
        )
    missing = Failed(f"{peer} did not say whether it has the message.")
    return {number: found.get(number, missing) for number in numbers}


def _refusal(peer: str, answer: ServiceAnswer) -> Exception:
    code, words = _words_of(answer)
    if any(part in code for part in _UNKNOWN_CLIENT):
        return BrokerRefusedError(f"{peer} refused the credentials: {one_line(words).rstrip('.')}.")
    if _is_throttling(code):
        wait = answer.retry_after or THROTTLED_PAUSE_SECONDS
        return QueueRefusedError(failure_of_service(peer, answer._replace(retry_after=wait), words, retryable=True))
    return QueueRefusedError(failure_of_service(peer, answer, words))


def _words_of(answer: ServiceAnswer) -> tuple[str, str]:
    """The code of an error, and a text that has it."""
    try:
        document = msgspec.json.decode(answer.body)
        code = str(document.get("__type", "")).rpartition("#")[2]
        words = str(document.get("message") or document.get("Message") or code)
    except (msgspec.MsgspecError, AttributeError):
        return "", answer.body[:500].decode("utf-8", "replace").strip()
    return code, words if not code or code in words else f"{words} ({code})"


def _is_throttling(code: str) -> bool:
    return any(part in code for part in _THROTTLING)
