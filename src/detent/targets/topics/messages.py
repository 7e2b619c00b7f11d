"""The message of a call: the payload as JSON, and the facts of the run as headers.

As a CloudEvent, its attributes are headers too (binary mode), under the prefix that the binding of the protocol has.
Where there is no binding with headers, the body is the whole event as JSON (structured mode); the facts are in it as
extension attributes as well.
"""

from __future__ import annotations

import msgspec

from detent.domain.job import TopicTarget
from detent.domain.run import Call
from detent.domain.secret_ref import SecretRef
from detent.domain.target_rules import check_headers
from detent.domain.topics import protocol_of
from detent.targets.facts import fact_headers
from detent.targets.text import instant_text, visible
from detent.targets.topics.publisher import TopicMessage
from detent.telemetry.tracing import traceparent_of

CLOUDEVENT = "application/cloudevents+json"
EVENT_TYPE = "detent.run"

# The prefix of attributes in binary mode. Protocols that are not here get the structured form.
_PREFIXES = {"nats": "ce-", "kafka": "ce_", "amqp": "cloudEvents_", "mqtt": "", "pubsub": "ce-"}
# Their binding percent-encodes values as HTTP's does; the others send any text.
_ENCODED = frozenset({"nats"})


class UnfilledSecretError(ValueError):
    """A header still refers to a secret."""


def message_of(call: Call) -> TopicMessage:
    target = call.target
    assert isinstance(target, TopicTarget)
    headers = _headers(call, target)
    body, content_type = msgspec.json.encode(call.payload), "application/json"
    if target.format == "cloudevents":
        protocol = protocol_of(target.url)
        prefix = _PREFIXES.get(protocol)
        if prefix is None:
            body, content_type = _structured(call, headers, body), CLOUDEVENT
        else:
            for name, value in _attributes(call, headers).items():
                headers[prefix + name] = visible(value) if protocol in _ENCODED else value
    return TopicMessage(target.topic, body, headers, target.key or call.job_id, call.idempotency_key, content_type)


def _headers(call: Call, target: TopicTarget) -> dict[str, str]:
    trace = call.traceparent or traceparent_of(call.run_id)
    if not target.headers:
        return {"traceparent": trace, **fact_headers(call)}
    own: dict[str, str] = {}
    for name, value in target.headers.items():
        if isinstance(value, SecretRef):
            raise UnfilledSecretError("A header refers to a secret, and only a worker of a cluster can fill it in.")
        own[name] = value
    if call.filled:  # what a secret holds was not checked at registration
        check_headers(own)
    if all(name.lower() != "traceparent" for name in own):
        own["traceparent"] = trace
    return own | fact_headers(call)


def _attributes(call: Call, headers: dict[str, str]) -> dict[str, str]:
    """Of the event. Each attempt of a run sends the same `source` and `id`: it is the same event."""
    return {
        "specversion": "1.0",
        "id": call.idempotency_key,
        "source": f"/detent/jobs/{call.job_id}",
        "type": EVENT_TYPE,
        "subject": call.job,
        "time": instant_text(call.scheduled_at),
        "traceparent": next(value for name, value in headers.items() if name.lower() == "traceparent"),
    }


def _structured(call: Call, headers: dict[str, str], body: bytes) -> bytes:
    event: dict[str, object] = {**_attributes(call, headers), "datacontenttype": "application/json"}
    for name, value in headers.items():
        if name.startswith("Detent-"):
            event[name.replace("-", "").lower()] = value
    event["data"] = msgspec.Raw(body)
    return msgspec.json.encode(event)
