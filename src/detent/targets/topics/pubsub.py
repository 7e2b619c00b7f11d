"""Messages to topics of Google Pub/Sub, by its REST API.

The service account of the target signs its own tokens: no token server is asked, and no other host than the one of the
target is called. An emulator, which listens on a port of its own, needs no credentials.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from detent.domain.run import Failed
from detent.targets.breaker import Unanswered
from detent.targets.text import one_line
from detent.targets.topics.http_service import ServiceAnswer, UnansweredError, failure_of_service, requests_to
from detent.targets.topics.publisher import Answer, BrokerAddress, BrokerRefusedError, Dial, Receipt, TopicMessage
from detent.version import __version__

AUDIENCE = "https://pubsub.googleapis.com/"
TOKEN_LASTS = timedelta(hours=1)
RENEWED_BEFORE_END = timedelta(minutes=5)
# What the service takes in one request.
MAX_MESSAGES = 1000
MAX_REQUEST_BYTES = 7_000_000
MAX_VALUE_BYTES = 1024
KEY_FORM = "the JSON key of a service account, with client_email and private_key"


class ServiceAccount(NamedTuple):
    email: str
    private_key: str
    key_id: str | None = None

    def __repr__(self) -> str:
        """Without the key."""
        return f"ServiceAccount({self.email!r})"


def read_service_account(text: str) -> ServiceAccount | None:
    """None: it is not the key of a service account."""
    try:
        document = msgspec.json.decode(text)
        email, key, key_id = document["client_email"], document["private_key"], document.get("private_key_id")
    except (msgspec.MsgspecError, TypeError, KeyError, AttributeError):
        return None
    if not isinstance(email, str) or not isinstance(key, str) or not isinstance(key_id, str | None):
        return None
    return ServiceAccount(email, key, key_id)


def open_publisher(address: BrokerAddress, dial: Dial) -> PubsubPublisher:
    return PubsubPublisher(address, dial)


class PubsubPublisher:
    def __init__(self, address: BrokerAddress, dial: Dial) -> None:
        self._project = address.url.path.strip("/")
        self._ordered = address.url.query.get("ordering", "true") != "false"
        self._requests = requests_to(address, dial)
        self._tokens: _Tokens | None = None
        if self._requests.origin.scheme == "https":  # an emulator asks for none, and a token is not sent in the clear
            self._tokens = _Tokens(address.password)

    async def publish(self, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        answers: dict[int, Answer] = {}
        found = await asyncio.gather(
            *(self._publish_in_turn(topic, numbers, messages) for topic, numbers in _by_topic(messages).items())
        )
        for of_topic in found:
            answers.update(of_topic)
        return [answers[number] for number in range(len(messages))]

    async def _publish_in_turn(
        self, topic: str, numbers: Sequence[int], messages: Sequence[TopicMessage]
    ) -> dict[int, Answer]:
        """One request after the other, so that messages of one key keep their order."""
        answers: dict[int, Answer] = {}
        for part in _parts(numbers, messages):
            sent = await self._send(topic, [messages[number] for number in part])
            answers.update(zip(part, sent, strict=True))
        return answers

    async def _send(self, topic: str, messages: Sequence[TopicMessage]) -> Sequence[Answer]:
        headers = {"Content-Type": "application/json", "User-Agent": f"detent/{__version__}"}
        if self._tokens is not None:
            headers["Authorization"] = f"Bearer {await self._tokens.read()}"
        path = topic if topic.startswith("projects/") else f"projects/{self._project}/topics/{topic}"
        body = msgspec.json.encode({"messages": [self._document(message) for message in messages]})
        try:
            answer = await self._requests.post(f"/v1/{quote(path, safe='/')}:publish", body, headers)
        except UnansweredError as error:
            return [Unanswered(Failed(str(error)), sent=True)] * len(messages)
        if answer.status != 200:
            return [_refusal(self._requests.peer, answer)] * len(messages)
        ids = msgspec.json.decode(answer.body).get("messageIds") or ()
        if len(ids) != len(messages):
            return [Failed(f"{self._requests.peer} did not say which messages it has.")] * len(messages)
        return [Receipt({"message_id": each}) for each in ids]

    def _document(self, message: TopicMessage) -> dict[str, Any]:
        document: dict[str, Any] = {
            "data": base64.b64encode(message.body).decode(),
            "attributes": attributes_of(message.headers, message.content_type),
        }
        if self._ordered:
            document["orderingKey"] = ordering_key(message.key)
        return document

    async def close(self) -> None:
        await self._requests.close()


class _Tokens:
    """Signed by the service account itself, as Google's services take them, and used until shortly before their end."""

    def __init__(self, password: str | None) -> None:
        self._password = password
        self._token = ""
        self._until = datetime.min.replace(tzinfo=UTC)

    async def read(self) -> str:
        now = datetime.now(UTC)
        if now >= self._until:
            account = read_service_account(self._password or "")
            if account is None:
                raise BrokerRefusedError(f"The password of the target's credentials has to be {KEY_FORM}.")
            self._token = await asyncio.to_thread(signed_token, account, now)
            self._until = now + TOKEN_LASTS - RENEWED_BEFORE_END
        return self._token


def signed_token(account: ServiceAccount, at: datetime) -> str:
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import RSAKey

    begin = int(at.timestamp())
    claims = {
        "iss": account.email,
        "sub": account.email,
        "aud": AUDIENCE,
        "iat": begin,
        "exp": begin + int(TOKEN_LASTS.total_seconds()),
    }
    header = {"alg": "RS256", "typ": "JWT", **({"kid": account.key_id} if account.key_id else {})}
    try:
        return jwt.encode(header, claims, RSAKey.import_key(account.private_key))
    except (ValueError, TypeError, JoseError):
        raise BrokerRefusedError(f"The private key of {account.email} cannot be read: give {KEY_FORM}.") from None


def attributes_of(headers: Mapping[str, str], content_type: str) -> dict[str, str]:
    """Pub/Sub refuses longer values. Headers of jobs are refused for that when they are registered; the name of a job
    may become as long when it is encoded, and the message has its id as well."""
    return {name: _cut(value) for name, value in {"Content-Type": content_type, **headers}.items()}


def _cut(text: str) -> str:
    return text if len(text) * 4 <= MAX_VALUE_BYTES else text.encode()[:MAX_VALUE_BYTES].decode("utf-8", "ignore")


def ordering_key(key: str) -> str:
    encoded = key.encode("utf-8", "surrogatepass")
    return key if len(encoded) <= MAX_VALUE_BYTES else hashlib.sha256(encoded).hexdigest()


def _by_topic(messages: Sequence[TopicMessage]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for number, message in enumerate(messages):
        topics.setdefault(message.topic, []).append(number)
    return topics


def _parts(numbers: Sequence[int], messages: Sequence[TopicMessage]) -> list[list[int]]:
    parts: list[list[int]] = []
    size = 0
    for number in numbers:
        own = len(messages[number].body) + sum(len(text) for pair in messages[number].headers.items() for text in pair)
        if not parts or len(parts[-1]) == MAX_MESSAGES or size + own > MAX_REQUEST_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(number)
        size += own
    return parts


def _refusal(peer: str, answer: ServiceAnswer) -> Failed | Unanswered:
    try:
        error = msgspec.json.decode(answer.body)["error"]
        words, status = str(error["message"]), str(error.get("status", ""))
    except (msgspec.MsgspecError, TypeError, KeyError):
        words, status = answer.body[:500].decode("utf-8", "replace").strip(), ""
    if answer.status == 401:
        raise BrokerRefusedError(f"{peer} refused the credentials: {one_line(words).rstrip('.')}.")
    if answer.status == 429 and answer.retry_after is None:
        answer = answer._replace(retry_after=1.0)
    text = f"{words} ({status})" if status else words
    return failure_of_service(peer, answer, text)
