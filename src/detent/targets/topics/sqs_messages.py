"""Messages in the form that SQS takes. No I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from detent.targets.topics.publisher import TopicMessage

MAX_ENTRIES = 10
MAX_BATCH_BYTES = 262_144
MAX_ATTRIBUTES = 10
COMBINED = "Detent-Headers"
"""The attribute that holds, as a JSON object, the headers that SQS has no place for."""

_FACTS = ("Detent-", "Idempotency-Key")
_ATTRIBUTE = re.compile(r"(?!aws\.|amazon\.|\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)", re.IGNORECASE)
_FIFO_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\[\\\]^_`{|}~-]{1,128}")
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def attributes_of(headers: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """An attribute for each header, as long as there are at most ten. Otherwise nine, those of detent first, and one
    that combines the others; it also has those whose name or value no attribute may have."""
    ordered = sorted(headers.items(), key=lambda header: not header[0].startswith(_FACTS))
    plain = {name: value for name, value in ordered if _ATTRIBUTE.fullmatch(name) and fits(value)}
    if len(plain) < len(headers) or len(plain) > MAX_ATTRIBUTES:
        alone = dict(list(plain.items())[: MAX_ATTRIBUTES - 1])
        others = {name: value for name, value in headers.items() if name not in alone}
        plain = {**alone, COMBINED: msgspec.json.encode(others).decode()}
    return {name: {"DataType": "String", "StringValue": value} for name, value in plain.items()}


def fits(text: str) -> bool:
    """Whether SQS takes this text as a body or as the value of an attribute."""
    return bool(text) and _ILLEGAL.search(text) is None


def fifo_id(text: str) -> str:
    """The text where SQS takes it as the id of a group or of a message, otherwise its hash."""
    return text if _FIFO_ID.fullmatch(text) else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def entry_of(number: int, message: TopicMessage, *, fifo: bool, delay: int | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "Id": str(number),
        "MessageBody": message.body.decode() or "null",
        "MessageAttributes": attributes_of(message.headers),
    }
    if fifo:  # whose messages have the delay of their queue
        entry["MessageGroupId"] = fifo_id(message.key)
        entry["MessageDeduplicationId"] = fifo_id(message.deduplication_id)
    elif delay is not None:
        entry["DelaySeconds"] = delay
    return entry


def batches_of(entries: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """In their order, as many in one request as SQS takes."""
    batch: list[dict[str, Any]] = []
    size = 0
    for entry in entries:
        own = size_of(entry)
        if batch and (len(batch) == MAX_ENTRIES or size + own > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += own
    if batch:
        yield batch


def size_of(entry: Mapping[str, Any]) -> int:
    """What SQS counts: the body, and the names, types and values of attributes."""
    attributes = entry["MessageAttributes"].items()
    return len(entry["MessageBody"].encode()) + sum(
        len(name) + len("String") + len(value["StringValue"].encode()) for name, value in attributes
    )
