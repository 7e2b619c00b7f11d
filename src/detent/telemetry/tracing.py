"""Spans of runs for OpenTelemetry: schedule, fire, claim, attempt. Off, and free of cost, until `start` is called.

The id of a run is the id of its trace, so every process that handles a run knows its trace: the spans of the scheduler
that fired it, of the worker that executed it and of the target that read `traceparent` join. For the same reason the
ids of the first two spans, and the choice of runs that are traced, are computed from the run's id.

    schedule    from the tick until its fire is answered
    fire        the statement that creates the run
    claim       from the moment a worker has the run to the start of the attempt
    attempt     the call of the target, which gets this span as its parent
"""

from __future__ import annotations

import hashlib
import os
import random
import socket
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from detent.domain.identity import RunKey, node_name, run_id
from detent.domain.job import TopicTarget, kind_of
from detent.domain.run import Call, Failed, NotBegun, Outcome
from detent.domain.topics import protocol_of
from detent.errors import UsageError
from detent.telemetry.log import logger
from detent.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

SCHEDULE, FIRE = b"schedule", b"fire"


def traceparent_of(run: str) -> str:
    """For a run that is not traced: all its attempts still share one trace id."""
    return f"00-{run.replace('-', '')}-{random.getrandbits(64):016x}-01"


class Ids:
    """Gives a span the id that was set for it, otherwise a random one. All spans begin on one loop."""

    def __init__(self) -> None:
        self.trace_id = 0
        self.span_id: int | None = None

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        asked, self.span_id = self.span_id, None
        return random.getrandbits(64) or 1 if asked is None else asked

    def is_trace_id_random(self) -> bool:
        return False


class Tracing:
    def __init__(self, provider: TracerProvider, ids: Ids, ratio: float) -> None:
        self._provider = provider
        self._ids = ids
        self._limit = ratio * 2**64
        self._tracer = provider.get_tracer("detent", __version__)

    def sampled(self, run: UUID) -> bool:
        """Every node gives the same answer, so a run is traced whole or not at all."""
        return _digest(run, b"") < self._limit

    def fired(self, key: RunKey, node: int, sent: datetime, answered: datetime, *, handed_off: bool) -> None:
        run = run_id(key)
        if not self.sampled(run):
            return
        try:
            self._record_fired(run, key, node, sent, answered, handed_off)
        except Exception as error:  # a failing trace must not fail the run
            _warn("fire not traced", run_id=str(run), error=str(error))

    def _record_fired(
        self, run: UUID, key: RunKey, node: int, sent: datetime, answered: datetime, handed_off: bool
    ) -> None:
        facts = {"detent.run_id": str(run), "detent.job_number": key.job, "detent.node": node_name(node)}
        schedule = self._begin("schedule", run, None, key.scheduled_at, facts, _digest(run, SCHEDULE))
        fire = self._begin("fire", run, _digest(run, SCHEDULE), sent, facts, _digest(run, FIRE))
        fire.set_attribute("detent.handed_off", handed_off)
        fire.end(_nanoseconds(answered))
        schedule.end(_nanoseconds(answered))

    async def attempt(
        self,
        call: Call,
        accepted: datetime,
        started: datetime,
        execute: Callable[[Call], Awaitable[Outcome | NotBegun]],
        now: Callable[[], datetime],
    ) -> Outcome | NotBegun:
        """Call the target inside its spans. `accepted` is when the worker got the run."""
        run = UUID(call.run_id)
        if not self.sampled(run):
            return await execute(msgspec.structs.replace(call, traceparent=f"{traceparent_of(call.run_id)[:-2]}00"))
        try:
            span, traced = self._begin_attempt(call, run, accepted, started)
        except Exception as error:  # a failing trace must not fail the run
            _warn("attempt not traced", run_id=call.run_id, error=str(error))
            return await execute(call)
        outcome: Outcome | NotBegun | None = None
        try:
            outcome = await execute(traced)
            return outcome
        finally:
            _end_attempt(span, outcome, now)

    def _begin_attempt(self, call: Call, run: UUID, accepted: datetime, started: datetime) -> tuple[Span, Call]:
        """The span of an attempt, and the call with that span as its parent."""
        facts = _facts(call)
        claim = self._begin("claim", run, _digest(run, FIRE), accepted, facts)
        claim.end(_nanoseconds(started))
        span = self._begin("attempt", run, claim.get_span_context().span_id, started, facts)
        parent = f"00-{run.hex}-{span.get_span_context().span_id:016x}-01"
        return span, msgspec.structs.replace(call, traceparent=parent)

    def _begin(
        self,
        name: str,
        run: UUID,
        parent: int | None,
        at: datetime,
        facts: dict[str, Any],
        span_id: int | None = None,
    ) -> Span:
        from opentelemetry import trace
        from opentelemetry.context import Context

        self._ids.trace_id, self._ids.span_id = run.int, span_id
        context = Context()
        if parent is not None:
            above = trace.SpanContext(run.int, parent, is_remote=True, trace_flags=trace.TraceFlags(1))
            context = trace.set_span_in_context(trace.NonRecordingSpan(above), context)
        return self._tracer.start_span(name, context, attributes=facts, start_time=_nanoseconds(at))

    def flush(self) -> None:
        self._provider.force_flush()

    def stop(self) -> None:
        self._provider.shutdown()


active: Tracing | None = None


def start(ratio: float, exporter: SpanExporter | None = None) -> Tracing:
    """Start tracing, instead of any tracing before. OpenTelemetry's variables (OTEL_…) say where spans go."""
    global active
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    except ImportError as error:
        raise UsageError(
            "traces is otlp, but OpenTelemetry is not installed here: install detent[otel], or set traces to none."
        ) from error
    stop()
    ids: Any = Ids()
    provider = TracerProvider(sampler=ALWAYS_ON, id_generator=ids, resource=_resource())
    provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
    active = Tracing(provider, ids, ratio)
    return active


def stop() -> None:
    """Send the remaining spans. This takes seconds when no collector answers."""
    global active
    stopped, active = active, None
    if stopped is not None:
        stopped.stop()


def _resource() -> Resource:
    """The resource that sends the spans; OpenTelemetry's variables take precedence."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    given = OTELResourceDetector().detect().attributes
    instance = f"{socket.gethostname()}:{os.getpid()}"
    facts = {"service.name": "detent", "service.version": __version__, "service.instance.id": instance}
    return Resource.create({name: value for name, value in facts.items() if name not in given})


def _facts(call: Call) -> dict[str, Any]:
    facts = {
        "detent.run_id": call.run_id,
        "detent.job": call.job,
        "detent.job_id": call.job_id,
        "detent.attempt": call.attempt,
        "detent.token": call.token,
        "detent.target": kind_of(call.target),
        "detent.scheduled_at": call.scheduled_at.isoformat(),
    }
    if isinstance(call.target, TopicTarget):
        facts["messaging.system"] = protocol_of(call.target.url)
        facts["messaging.destination.name"] = call.target.topic
    return facts


def _warn(event: str, **facts: object) -> None:
    logger("tracing").warning(event, **facts)  # created here, because users import this module


def _end_attempt(span: Span, outcome: Outcome | NotBegun | None, now: Callable[[], datetime]) -> None:
    """No outcome: the attempt was cancelled or timed out. The target was called, so a failure here must not replace its
    outcome."""
    try:
        if outcome is None:
            span.set_attribute("detent.outcome", "interrupted")
        else:
            _record_outcome(span, outcome)
        span.end(_nanoseconds(now()))
    except Exception as error:
        _warn("end of attempt not traced", error=str(error))


def _record_outcome(span: Span, outcome: Outcome | NotBegun) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("detent.outcome", type(outcome).__name__.lower())
    if isinstance(outcome, Failed):
        span.set_status(Status(StatusCode.ERROR, outcome.error))


def _digest(run: UUID, what: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(run.bytes, digest_size=8, person=what).digest(), "big")


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000
