"""`detent doctor` about the broker of DETENT_QUEUE."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from detent.cli.doctor.results import CheckResult
from detent.cli.doctor.transport import check_transport
from tests.support.ports import free_port
from tests.transports.carriers import Carrier


async def checked(named: str) -> list[CheckResult]:
    return [result async for result in check_transport(named, uuid4(), [1, 2])]


async def test_the_doctor_says_whether_the_broker_answers_and_what_waits_there(carrier: Carrier) -> None:
    (result,) = await checked(carrier.address())
    assert (result.status, result.found.split(";")[1]) == ("ok", " 0 offers of runs wait there.")
    (result,) = await checked(carrier.address(port=free_port()))
    assert result.status == "warn"
    assert "Runs go through PostgreSQL" in result.found


async def test_any_failure_of_a_client_library_is_a_broker_that_does_not_answer(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_arguments: object) -> None:
        raise ValueError("no such setting")

    kind: Any = type(carrier.transport("doctor"))
    usual = kind.close

    async def closes_and_fails(self: Any) -> None:
        await usual(self)
        await fails()

    monkeypatch.setattr(kind, "depth", fails)
    monkeypatch.setattr(kind, "close", closes_and_fails)
    (result,) = await checked(carrier.address())
    assert result.status == "warn"
    assert "no such setting. Runs go through PostgreSQL" in result.found


async def test_without_a_broker_the_doctor_says_nothing_about_one() -> None:
    assert await checked("postgres") == []
