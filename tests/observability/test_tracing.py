"""Spans of runs, as a real collector gets them over OTLP; and what targets are told of their trace."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from detent.domain.identity import RunKey, run_id
from detent.domain.job import HttpTarget, JobSpec, ShellTarget
from detent.domain.run import Call, Failed, Outcome, Succeeded
from detent.jobs import JobOperations
from detent.store import Store
from detent.targets.shell import ShellTargetRunner
from detent.telemetry import tracing
from tests.observability.receiver import Receiver, receiving
from tests.support.factories import LONG_AGO
from tests.support.sessions import StartSession
from tests.support.waiting import until

pytest.importorskip("opentelemetry.sdk")


class Collector:
    """Reads what it is sent."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def spans(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found = []
        for message in self._receiver.messages:
            request = ExportTraceServiceRequest()
            request.ParseFromString(message.body)
            found += [span for part in request.resource_spans for scope in part.scope_spans for span in scope.spans]
        return found

    def service(self) -> str:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        request = ExportTraceServiceRequest()
        request.ParseFromString(self._receiver.messages[0].body)
        facts = {fact.key: fact.value.string_value for fact in request.resource_spans[0].resource.attributes}
        return facts["service.name"]


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    async with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        yield Collector(receiver)
        await asyncio.to_thread(tracing.stop)


async def add(store: Store, **fields: Any) -> None:
    target = HttpTarget(url="http://127.0.0.1:9/")
    await JobOperations(store).registration.add(
        [JobSpec(schedule="every 1s", target=target, name="report", max_runs=1, **fields)]
    )


async def sent(collector: Collector, count: int) -> dict[str, list[Any]]:
    """Spans by name, once there are so many."""

    def enough() -> bool:
        return len(collector.spans()) >= count

    assert tracing.active is not None
    await asyncio.to_thread(tracing.active.flush)
    await until(enough, 10, f"{count} spans")
    found: dict[str, list[Any]] = {}
    for span in collector.spans():
        found.setdefault(span.name, []).append(span)
    return found


async def test_a_run_is_one_trace_from_its_tick_to_its_last_attempt(
    store: Store, start: StartSession, collector: Collector
) -> None:
    calls: list[Call] = []

    async def fails_first(call: Call) -> Outcome:
        calls.append(call)
        return Failed("broken") if call.attempt == 1 else Succeeded()

    tracing.start(1.0)
    await start(fails_first)
    await add(store, retry_base_seconds=0)
    await until(lambda: len(calls) == 2, 10, "two attempts")
    spans = await sent(collector, 6)
    assert {name: len(some) for name, some in spans.items()} == {"schedule": 1, "fire": 1, "claim": 2, "attempt": 2}
    every = [span for some in spans.values() for span in some]
    assert {span.trace_id for span in every} == {UUID(calls[0].run_id).bytes}
    (schedule,), (fire,) = spans["schedule"], spans["fire"]
    assert (schedule.parent_span_id, fire.parent_span_id) == (b"", schedule.span_id)
    assert schedule.start_time_unix_nano == round(calls[0].scheduled_at.timestamp() * 1000) * 1_000_000
    for call, claim, attempt in zip(calls, spans["claim"], spans["attempt"], strict=True):
        assert (claim.parent_span_id, attempt.parent_span_id) == (fire.span_id, claim.span_id)
        assert call.traceparent == f"00-{UUID(call.run_id).hex}-{attempt.span_id.hex()}-01"
        assert claim.end_time_unix_nano == attempt.start_time_unix_nano <= attempt.end_time_unix_nano
    assert [attempt.status.code for attempt in spans["attempt"]] == [2, 0]
    assert collector.service() == "detent"


async def test_of_all_runs_a_share_is_traced_and_all_nodes_choose_the_same(collector: Collector) -> None:
    runs = [run_id(RunKey(number, LONG_AGO)) for number in range(1, 2001)]
    chosen = []
    for ratio in (0.25, 0.25, 0.0, 1.0):
        tracer = tracing.start(ratio)
        chosen.append([tracer.sampled(run) for run in runs])
        await asyncio.to_thread(tracing.stop)
    first, again, none, every = chosen
    assert first == again
    assert 400 < sum(first) < 600
    assert not any(none) and all(every)


async def test_a_run_that_is_not_chosen_tells_its_target_so(
    store: Store, start: StartSession, collector: Collector
) -> None:
    told: list[str | None] = []

    async def note(call: Call) -> Outcome:
        told.append(call.traceparent)
        return Succeeded()

    tracing.start(0.0)
    await start(note)
    await add(store)
    await until(lambda: told, 10, "the run")
    assert told[0] is not None and told[0].endswith("-00")
    assert collector.spans() == []


@pytest.mark.parametrize("step", ["on_start", "on_end"])
async def test_a_trace_that_fails_costs_no_run_its_outcome(
    store: Store, start: StartSession, collector: Collector, look: Any, step: str
) -> None:
    """Raised before the call, it kept the run from being started; raised after it, the outcome was lost."""
    from opentelemetry.sdk.trace import SpanProcessor

    calls: list[str] = []

    async def note(call: Call) -> Outcome:
        calls.append(call.run_id)
        return Succeeded("done")

    def breaks(*_: object) -> None:
        raise ValueError("no room for spans")

    processor = SpanProcessor()
    setattr(processor, step, breaks)
    (await asyncio.to_thread(tracing.start, 1.0))._provider.add_span_processor(processor)
    await start(note)
    await add(store, delivery="at_most_once")
    assert (await until(lambda: look.fetchrow("SELECT * FROM run_history"), 10, "the run"))["result"] == "done"
    assert len(calls) == 1


async def test_what_is_started_again_leaves_no_thread_behind(collector: Collector) -> None:
    def exporting() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("OtelBatch")]

    for _ in range(3):
        await asyncio.to_thread(tracing.start, 1.0)
    assert len(exporting()) == 1
    await asyncio.to_thread(tracing.stop)
    assert exporting() == []


def test_what_the_variables_say_of_the_service_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=jobs-of-the-shop,team=night")
    told = tracing._resource().attributes
    assert (told["service.name"], told["team"]) == ("jobs-of-the-shop", "night")
    assert told["service.version"]


async def test_a_command_finds_its_trace_in_its_environment() -> None:
    runner = ShellTargetRunner({1: "default"})
    call = Call(
        "j", "job", str(run_id(RunKey(7, LONG_AGO))), LONG_AGO, 1, "k", 1, None, ShellTarget("echo $TRACEPARENT"), 9
    )
    outcome = await runner(call)
    await runner.close()
    assert isinstance(outcome, Succeeded) and outcome.result is not None
    assert f"00-{call.run_id.replace('-', '')}-" in outcome.result


def test_without_traces_nothing_of_opentelemetry_is_loaded() -> None:
    code = "import sys, detent.node.session; sys.exit(any('opentelemetry' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
