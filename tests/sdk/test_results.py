"""A function returns JSON, or its attempt fails with the type that it returned and what to return instead."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest

from detent import Detent
from detent.domain.run import Failed, Succeeded
from detent.sdk.testing import TestMode
from detent.targets.python import Describer
from detent.targets.results import NotJson, as_json
from tests.sdk.test_raising_handlers import Invoke, invoke, still_works

__all__ = ["invoke"]  # the fixture

INSTEAD = ": return a dict, list, string, number, dataclass, msgspec Struct, pydantic model, or None."


@dataclass
class Parcel:
    weight: Decimal


class Address(msgspec.Struct):
    city: str


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: int


class Order(pydantic.BaseModel):
    number: int
    placed_at: datetime
    lines: list[Parcel] = []


class Plain:
    def __str__(self) -> str:
        raise KeyboardInterrupt("never called")


class Hidden(type):
    def __getattribute__(cls, name: str) -> Any:
        if name == "__qualname__":
            raise KeyboardInterrupt
        return super().__getattribute__(name)


NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
JSON = [
    ({"a": [1, 2.5, None, True]}, '{"a":[1,2.5,null,true]}'),
    (Parcel(Decimal("1.50")), '{"weight":"1.50"}'),
    (Address("Ulm"), '{"city":"Ulm"}'),
    ([Colour.RED, Pair(1, 2), frozenset([3])], '["red",[1,2],[3]]'),
    (UUID(int=7), '"00000000-0000-0000-0000-000000000007"'),
    ({"at": NOON}, '{"at":"2026-03-29T12:00:00Z"}'),
    (Order(number=3, placed_at=NOON), '{"number":3,"placed_at":"2026-03-29T12:00:00Z","lines":[]}'),
    ({"orders": [Order(number=3, placed_at=NOON)]}, None),
    ("", '""'),
]
ITSELF: list[Any] = []
ITSELF.append(ITSELF)
NO_FORM = ", which has no JSON form"
OTHER = [
    (Plain(), f"Plain{NO_FORM}"),
    ([1, Plain()], f"list with an object of type Plain{NO_FORM}"),
    ({"rows": (n for n in "ab")}, f"dict with an object of type generator{NO_FORM}"),
    ({(1, 2): 3}, f"dict with keys of type tuple{NO_FORM}"),
    (ITSELF, f"list{NO_FORM} ("),
    (Hidden("Odd", (), {})(), f"Odd{NO_FORM}"),
    (open, f"builtin_function_or_method{NO_FORM}"),
]


@pytest.mark.parametrize(("result", "text"), JSON, ids=[type(result).__name__ for result, _ in JSON])
async def test_what_has_a_json_form_is_the_result(invoke: Invoke, result: object, text: str | None) -> None:
    if text is None:
        text = '{"orders":[{"number":3,"placed_at":"2026-03-29T12:00:00Z","lines":[]}]}'
    assert await invoke(lambda: result) == Succeeded(text)


@pytest.mark.parametrize(("result", "text"), OTHER, ids=[text[:20] for _, text in OTHER])
async def test_another_result_fails_the_attempt_for_good_and_names_its_type(
    invoke: Invoke, result: object, text: str
) -> None:
    async def coroutine() -> object:
        return result

    functions: list[Callable[[], object]] = [lambda: result, coroutine]
    for function in functions:
        outcome = await invoke(function)
        assert isinstance(outcome, Failed) and not outcome.retryable
        assert outcome.error.startswith(
            f"NotJson: The function returned an object of type {text}"
        ) and outcome.error.endswith(INSTEAD)
    await still_works(invoke)


async def test_a_run_that_committed_has_no_result_to_refuse(invoke: Invoke) -> None:
    assert not isinstance(await invoke(Plain, committed=True), Failed)


def test_a_long_result_is_truncated() -> None:
    assert as_json("x" * 50, 10) == '{"truncated":true,"beginning":"\\"xxxxxxxxx"}'


def test_a_model_that_cannot_serialise_itself_is_no_result() -> None:
    class Odd(pydantic.BaseModel, arbitrary_types_allowed=True):
        thing: Plain

    with pytest.raises(NotJson, match=r"of type Odd, which has no JSON form \(Unable to serialize unknown type"):
        as_json(Odd(thing=Plain()))


def test_test_mode_fails_as_a_worker_does() -> None:
    app = Detent()

    @app.job(every="1h", max_retries=3)
    def reports() -> Any:
        return Plain()

    with app.test() as t:
        assert isinstance(t, TestMode)
        run = t.trigger("reports")
    assert run.status == "dead" and len(run.attempts) == 1
    assert run.attempts[0].error == Describer(100).returned(_run(), Plain()).error


def _run() -> Any:
    class NotCommitted:
        committed = False

    return NotCommitted()
