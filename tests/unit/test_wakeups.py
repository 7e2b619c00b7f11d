"""Events call their subscribers, with their arguments."""

from __future__ import annotations

from detent.runtime.wakeups import Wakeups


def test_an_event_calls_its_subscribers_in_order() -> None:
    wakeups, calls = Wakeups(), list[object]()
    wakeups.runs_ready()
    wakeups.runs_ready.subscribe(lambda: calls.append("first"))
    wakeups.runs_ready.subscribe(lambda: calls.append("second"))
    wakeups.jobs_changed.subscribe(calls.append)
    wakeups.runs_ready()
    wakeups.jobs_changed({7})
    wakeups.jobs_changed(None)
    assert calls == ["first", "second", {7}, None]
