"""The text and the signature of a notification. Pure: the time is an argument.

Signatures follow Standard Webhooks: with them the receiver verifies the sender, the content and the age.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from detent.domain.webhooks import KEY_FORM, read_signing_key, signed
from detent.errors import UsageError
from detent.store.expectations import Notice

VERBS = {("start", "missed"): "did not start", ("finish", "missed"): "has not succeeded"}


def read_secrets(text: str) -> list[bytes]:
    """One secret, or two during a rotation: `whsec_` and base64, separated by a comma."""
    keys = [read_signing_key(part) for part in text.split(",")]
    if None in keys:
        raise UsageError(f"notify_secret is not usable: give {KEY_FORM}, or two of these with a comma between them.")
    return [key for key in keys if key is not None]


def headers_of(notice_id: str, at: datetime, body: bytes, secrets: Sequence[bytes]) -> dict[str, str]:
    """The headers that identify and sign the message."""
    return {"Content-Type": "application/json", **signed(notice_id, at, body, secrets)}


def id_of(notice: Notice) -> str:
    """The same at every retry. The creation time distinguishes it from notices of another database, which may have the
    same number."""
    made = (notice.at - notice.age).astimezone(UTC)
    return f"notice_{notice.notice}_{made:%Y%m%d%H%M%S%f}"


def body_of(notice: Notice, form: str) -> bytes:
    return msgspec.json.encode({"text": _slack(sentence(notice))} if form == "slack" else _document(notice))


def _document(notice: Notice) -> dict[str, Any]:
    return {
        "type": f"job.expectation.{notice.event}",
        "timestamp": notice.closed_at if notice.event == "recovered" else notice.opened_at,
        "data": {
            "incident": notice.incident,
            "tenant": notice.tenant,
            "job": notice.job,
            "job_id": notice.job_id,
            "expectation": notice.kind,
            "within_seconds": notice.within.total_seconds(),
            "scheduled_at": notice.tick,
            "misses": notice.misses,
            "opened_at": notice.opened_at,
            "closed_at": notice.closed_at if notice.event == "recovered" else None,
            "message": sentence(notice),
        },
    }


def sentence(notice: Notice) -> str:
    if notice.event == "recovered":
        what = "starts" if notice.kind == "start" else "succeeds"
        since = f"{notice.opened_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"The job {notice.job!r} {what} in time again. It had missed its deadline since {since}."
    missed = f"The job {notice.job!r} {VERBS[notice.kind, notice.event]} within {_span(notice.within)} of its tick at "
    missed += f"{notice.tick:%Y-%m-%d %H:%M:%S} UTC"
    return f"{missed}, {notice.misses} times in a row." if notice.misses > 1 else f"{missed}."


def _span(span: timedelta) -> str:
    seconds = span.total_seconds()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size or seconds == size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _slack(text: str) -> str:
    """Escape the three characters that Slack interprets."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
