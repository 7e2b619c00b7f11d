"""Where work is done: on the loop of the test, or in another thread."""

from __future__ import annotations

import threading

import pytest

from detent.domain.payload_schema import PayloadSchema


def threads_that_check(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the threads that have checked a payload by its schema since."""
    names: set[str] = set()
    check = PayloadSchema.check

    def recorded(schema: PayloadSchema, payload: object) -> None:
        names.add(threading.current_thread().name)
        check(schema, payload)

    monkeypatch.setattr(PayloadSchema, "check", recorded)
    return names
