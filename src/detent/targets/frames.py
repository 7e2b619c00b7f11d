"""The messages between a node and a handler process, over a socket pair: a length, then JSON.

JSON rather than a denser format, because payloads are JSON already and arrive unchanged.
"""

from __future__ import annotations

import struct
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from detent.domain.job import PythonTarget
from detent.domain.masking import Mask
from detent.domain.run import Accepted, Call, Cancelled, Claim, Committed, Failed, Outcome, Succeeded
from detent.domain.run_output import OutputChunk, ProgressMark

_LENGTH = struct.Struct("!I")
LENGTH_BYTES = _LENGTH.size


# --- to the process ---


class Effects(Struct, frozen=True):
    """How `run.transaction()`, `run.once` and `run.step` reach the database."""

    url: str
    schema: str
    ttl: float
    pooled: bool


class Setup(Struct, frozen=True, tag=True):
    """The first message."""

    app: str
    effects: Effects
    max_result_bytes: int
    log_format: str
    log_level: str
    hidden: bool = False
    """Whether commands run on this node, which must not read the memory of the process."""
    run_log_bytes: int = 0
    """How many bytes of lines are kept of an attempt."""


class Start(Struct, frozen=True, tag=True):
    """Call a handler."""

    function: str
    job_id: str
    job: str
    run_id: str
    scheduled_at: datetime
    attempt: int
    idempotency_key: str
    token: int
    payload: Any
    timeout_seconds: float
    traceparent: str | None
    window_start: datetime | None
    tenant: int = 1
    hidden: tuple[str, ...] = ()
    """The values of secrets in the payload, which must not come back."""

    def __repr__(self) -> str:
        return f"Start({self.job!r}, {self.run_id})"


class Stop(Struct, frozen=True, tag=True):
    """Interrupt the handler; it has a short grace period."""


class Holding(Struct, frozen=True):
    """The claim under which a node holds a run."""

    node: int
    claim: Claim
    started: float


class CallAnswer(Struct, frozen=True, tag=True):
    """The answer to the Ask of this number. None: the run was cancelled or taken over."""

    number: int
    holding: Holding | None


# --- from the process ---


class ProcessReady(Struct, frozen=True, tag=True):
    """The app is imported; handlers can be called."""


class Unfit(Struct, frozen=True, tag=True):
    """The app cannot be imported here."""

    error: str


class Begun(Struct, frozen=True, tag=True):
    """Sent before the handler is called: without this message, it was certainly not called."""


class Ask(Struct, frozen=True, tag=True):
    """Is the run still held, and under which claim?"""

    number: int


class CallDone(Struct, frozen=True, tag=True):
    failed: Failed | None = None
    committed: bool = False
    result: str | None = None
    cancelled: str | None = None
    """Why the handler discarded its run."""


ToProcess = Setup | Start | Stop | CallAnswer
FromProcess = ProcessReady | Unfit | Begun | Ask | CallDone | OutputChunk | ProgressMark

_to_process = msgspec.json.Decoder(ToProcess)
_from_process = msgspec.json.Decoder(FromProcess)


def frame(message: ToProcess | FromProcess) -> bytes:
    body = msgspec.json.encode(message)
    return _LENGTH.pack(len(body)) + body


def length_of(header: bytes) -> int:
    length: int = _LENGTH.unpack(header)[0]
    return length


def read_by_process(body: bytes) -> ToProcess:
    message: ToProcess = _to_process.decode(body)
    return message


def read_by_node(body: bytes) -> FromProcess:
    message: FromProcess = _from_process.decode(body)
    return message


def start_of(call: Call) -> Start:
    assert isinstance(call.target, PythonTarget)
    return Start(
        function=call.target.function,
        job_id=call.job_id,
        job=call.job,
        run_id=call.run_id,
        scheduled_at=call.scheduled_at,
        attempt=call.attempt,
        idempotency_key=call.idempotency_key,
        token=call.token,
        payload=call.payload,
        timeout_seconds=call.timeout_seconds,
        traceparent=call.traceparent,
        window_start=call.window_start,
        tenant=call.tenant,
        hidden=() if call.mask is None else call.mask.values,
    )


def call_in(start: Start) -> Call:
    return Call(
        job_id=start.job_id,
        job=start.job,
        run_id=start.run_id,
        scheduled_at=start.scheduled_at,
        attempt=start.attempt,
        idempotency_key=start.idempotency_key,
        token=start.token,
        payload=start.payload,
        target=PythonTarget(start.function),
        timeout_seconds=start.timeout_seconds,
        tenant=start.tenant,
        traceparent=start.traceparent,
        window=lambda: start.window_start,
        mask=Mask(start.hidden) if start.hidden else None,
    )


def done_with(outcome: Outcome) -> CallDone:
    match outcome:
        case Succeeded(result=result):
            return CallDone(result=result)
        case Committed():
            return CallDone(committed=True)
        case Failed():
            return CallDone(failed=outcome)
        case Cancelled(reason=reason):
            return CallDone(cancelled=reason)
        case Accepted():
            raise AssertionError("only an HTTP target accepts a run")


def outcome_in(done: CallDone) -> Outcome:
    if done.failed is not None:
        return done.failed
    if done.cancelled is not None:
        return Cancelled(done.cancelled)
    return Committed() if done.committed else Succeeded(done.result)
