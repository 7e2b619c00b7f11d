"""What a function may look like, and how its arguments become a payload and back."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from detent import Detent, Run
from detent.errors import PayloadMismatch, UsageError
from detent.sdk.binding import Binding
from detent.sdk.fields import JobFields

if TYPE_CHECKING:
    from collections import OrderedDict


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    since: datetime


class Order(msgspec.Struct):
    number: int
    address: Address


class Customer(pydantic.BaseModel):
    name: str
    joined: datetime
    balance: Decimal = Decimal(0)


class Company(pydantic.BaseModel):
    employees: int


class Opaque:
    pass


SINCE = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
VALUES: list[tuple[Any, Any]] = [
    (str, "a"),
    (int, 7),
    (float, 1),
    (bool, True),
    (bytes, b"\x00\xff"),
    (list[int], [1, 2]),
    (dict[int, str], {1: "a"}),
    (tuple[int, str], (1, "a")),
    (set[str], {"a"}),
    (str | None, None),
    (datetime, SINCE),
    (timedelta, timedelta(minutes=90)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (Colour, Colour.RED),
    (Address, Address("Main", SINCE)),
    (Order, Order(1, Address("Main", SINCE))),
    (list[Order], [Order(1, Address("Main", SINCE))]),
    (Customer, Customer(name="Ada", joined=SINCE, balance=Decimal("1.5"))),
    (dict[str, Customer], {"a": Customer(name="Ada", joined=SINCE)}),
    (Customer | Company, Company(employees=3)),
    (Annotated[int, msgspec.Meta(ge=1)], 3),
    (Any, {"any": [1, None]}),
    (object, [1]),
    (list[object], [1, {"a": None}]),
]


def function_of(annotation: Any) -> Callable[..., Any]:
    def work(value: Any) -> Any:
        return value

    work.__annotations__ = {"value": annotation, "return": annotation}
    return work


class RunWith:
    """As much of a run as a binding sees."""

    def __init__(self, payload: Any) -> None:
        self.payload = payload


@pytest.mark.parametrize(("annotation", "value"), VALUES)
def test_an_argument_arrives_as_it_was_given(annotation: Any, value: Any) -> None:
    binding = Binding(function_of(annotation))
    payload = binding.payload((value,), {})
    stored = msgspec.json.decode(msgspec.json.encode(payload))
    assert stored == payload, "the payload is JSON"
    arrived = binding.arguments(stored)["value"]
    assert (arrived == value and type(arrived) is type(value)) or annotation is float


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, 1), (int, "1"), (list[int], ["a"]), (Colour, "blue"), (datetime, "yesterday"), (Order, {"number": 1}),
        (Customer, {"name": 1}), (Annotated[int, msgspec.Meta(ge=1)], 0), (Any, Opaque()), (float, object()),
    ],
)  # fmt: skip
def test_an_argument_that_does_not_fit_is_refused_where_it_is_enqueued(annotation: Any, value: Any) -> None:
    with pytest.raises(UsageError, match=r"work: the argument 'value' does not fit: "):
        Binding(function_of(annotation)).payload((value,), {})


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ([1], "takes 'a', 'b', and the payload is not an object"),
        (None, "needs 'a', which is not in the payload"),
        ({"b": 1}, "needs 'a', which is not in the payload"),
        ({"a": "x", "c": 1}, "has no parameter 'c', which the payload has: it takes 'a', 'b'"),
        ({"a": "x"}, "'a' in the payload does not fit: Expected `int`, got `str`"),
    ],
)
def test_a_payload_that_does_not_fit_is_not_retried(payload: Any, words: str) -> None:
    def work(a: int, b: int = 2) -> int:
        return a + b

    with pytest.raises(PayloadMismatch) as refused:
        Binding(work).arguments(payload)
    assert words in str(refused.value)


def test_a_handler_takes_exactly_its_run() -> None:
    app = Detent()

    @app.task
    def plain(run: Run, a: int, /, b: int, *, c: int = 3) -> tuple[Any, ...]:
        return run, a, b, c

    @app.task
    async def awaited(a: int) -> int:
        return a

    @app.task
    def nothing() -> str:
        return "nothing"

    @app.task
    def untyped(run):  # type: ignore[no-untyped-def] # on purpose
        return run.payload

    handlers = {name.rpartition(":")[2].rpartition(".")[2]: handler for name, handler in app.functions.items()}
    run = RunWith({"a": 1, "b": 2})
    assert handlers["plain"](run) == (run, 1, 2, 3)
    assert handlers["nothing"](run) == "nothing" and handlers["untyped"](RunWith([1])) == [1]
    assert [inspect.iscoroutinefunction(handlers[name]) for name in ("plain", "awaited")] == [False, True]
    assert all(list(inspect.signature(handler).parameters) == ["run"] for handler in handlers.values())


def test_results_that_are_models_of_pydantic_are_json() -> None:
    def work(name: str) -> list[Customer]:
        return [Customer(name=name, joined=SINCE)]

    binding = Binding(work)
    made = binding.handler(RunWith({"name": "Ada"}))  # type: ignore[arg-type] # as much of a run as it needs
    assert made == [{"name": "Ada", "joined": "2026-03-29T01:30:00Z", "balance": "0"}]
    assert binding.result(made) == work("Ada")


def starred(*args: int) -> None: ...
def keywords(**kwargs: int) -> None: ...
def run_last(a: int, run: Run) -> None: ...
def opaque(a: Opaque) -> None: ...
def deep(a: list[dict[str, Opaque]]) -> None: ...
def default(a: Any = Opaque) -> None: ...
def with_self(self, a: int) -> None: ...  # type: ignore[no-untyped-def] # on purpose
def generator(a: int) -> Any:
    yield a


async def async_generator(a: int) -> Any:
    yield a


class Methods:
    def method(self, a: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (starred, r"takes \*args, which has no names: name each parameter"),
        (keywords, r"takes \*\*kwargs: name each parameter"),
        (run_last, "the run is the parameter 'run': make it the first one"),
        (opaque, "the parameter 'a' cannot be sent as JSON .*Opaque has no JSON form"),
        (deep, "the parameter 'a' cannot be sent as JSON .*Opaque has no JSON form"),
        (default, "the default of 'a' has no JSON form"),
        (with_self, "takes self: register a function of the module"),
        (generator, "is a generator"),
        (async_generator, "is a generator"),
        (Methods().method, "is bound to an object"),
        (lambda: 1, "A lambda has no name"),
        (partial(run_last, 1), "is not a function"),
        (Opaque(), "is not a function"),
    ],
    ids=lambda value: getattr(value, "__name__", "words") if callable(value) else "",
)
def test_a_function_that_cannot_be_a_handler_is_refused_when_it_is_registered(function: Any, words: str) -> None:
    app = Detent()
    with pytest.raises(UsageError, match=words):
        app.task(function)
    assert (app.jobs, app.functions, app.tasks) == ([], {}, {})


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (None, "needs 'kind' at each tick: give payload={'kind': …}, or the parameter a default"),
        ({"kind": "a", "size": 1}, "the payload has 'size', which is no parameter: it takes 'kind', 'n'"),
        ({"kind": 1}, "the argument 'kind' does not fit"),
        (["a"], "the payload is ['a']: give its parameters as an object"),
    ],
)
def test_a_scheduled_job_has_all_its_arguments_in_its_payload(payload: Any, words: str) -> None:
    app = Detent()

    def report(run: Run, kind: str, n: int = 1) -> None: ...

    with pytest.raises(UsageError) as refused:
        app.job(every="1h", payload=payload)(report)
    assert words in refused.value.message
    assert app.job(every="1h", payload={"kind": "daily"})(report).name == "report"


def test_annotations_may_use_names_that_are_defined_later_or_locally() -> None:
    @dataclass
    class Local:
        a: int

    app = Detent()

    @app.task
    def local(value: Local) -> None: ...

    @app.task
    def later(value: Later) -> None: ...

    app.check()
    assert local.call(Local(1)).payload == {"value": {"a": 1}}
    assert later.call(Later(b=2)).payload == {"value": {"b": 2}}


def test_an_annotation_that_is_imported_for_type_checkers_only_is_reported() -> None:
    app = Detent()

    @app.task
    def ordered(value: OrderedDict[str, int]) -> None: ...

    for use in (app.check, lambda: ordered.call({})):  # type: ignore[arg-type] # on purpose
        with pytest.raises(UsageError, match=r"the annotation of 'value' cannot be read .*OrderedDict.*TYPE_CHECKING"):
            use()


@dataclass
class Later:
    b: int


app = Detent("of the module")


@app.task
async def picklable(a: int) -> int:
    """Its words."""
    return a


async def test_a_task_is_still_its_function() -> None:
    assert await picklable(3) == 3
    assert (picklable.__doc__, picklable.__name__, picklable.name) == ("Its words.", "picklable", "picklable")
    assert list(inspect.signature(picklable).parameters) == ["a"]
    assert pickle.loads(pickle.dumps(picklable)) is picklable
    if hasattr(inspect, "markcoroutinefunction"):
        assert inspect.iscoroutinefunction(picklable)


def test_arguments_are_checked_as_python_checks_them() -> None:
    with pytest.raises(UsageError, match="picklable: missing a required argument: 'a'"):
        picklable.call()  # type: ignore[call-arg] # on purpose
    with pytest.raises(UsageError, match="picklable: too many positional arguments"):
        picklable.call(1, 2)  # type: ignore[call-arg] # on purpose
    with pytest.raises(UsageError, match="takes its payload as parameters"):
        picklable.options(payload=1)


def test_the_fields_of_a_job_are_typed_keywords() -> None:
    """Whatever a job has is a keyword, except what decorators have as parameters of their own."""
    from detent.domain.job import JobSpec

    own = {"schedule", "target", "name", "payload"}
    assert set(JobFields.__annotations__) == set(JobSpec.__struct_fields__) - own


def test_an_unknown_field_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="A job has no field 'max_retrys': did you mean 'max_retries'"):
        Detent().task(max_retrys=5)  # type: ignore[call-overload] # on purpose


def test_exceptions_are_given_as_classes() -> None:
    app = Detent()
    given = {
        "retry_on": (TimeoutError, Refused),
        "no_retry_on": ("shop.Gone",),
        "retry_delays": {Refused: SINCE - SINCE},
    }

    @app.task(**given)  # type: ignore[call-overload, untyped-decorator] # a dict
    def work() -> None: ...

    (document,) = app.jobs
    name = f"{__name__}.Refused"
    assert document["retry_on"] == ["TimeoutError", name] and document["no_retry_on"] == ["shop.Gone"]
    assert document["retry_delays"] == {name: 0.0}
    for wrong in ({"retry_on": TimeoutError}, {"retry_on": (1,)}, {"retry_delays": [1]}, {"retry_delays": {"a": "b"}}):
        with pytest.raises(UsageError):
            app.task(**wrong)


@pytest.mark.parametrize("wrong", ["billing", 7])
def test_tags_are_a_list(wrong: Any) -> None:
    """Text is a sequence of texts for type checkers: they do not flag this one."""
    with pytest.raises(UsageError, match=rf"tags is {wrong!r}: give a list, such as tags=\[{wrong!r}\]\."):
        Detent().task(tags=wrong)


class Refused(Exception):  # noqa: N818 - what a user may write
    pass


def test_importing_the_app_loads_no_driver_and_no_server() -> None:
    code = "import sys; from detent import Detent, Retry; Detent(); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path("/"))
    names = set(eval(loaded.stdout))
    assert not names & {"asyncpg", "aiohttp", "pydantic", "detent.store", "detent.client", "msgspec"}


def test_a_payload_of_models_is_registered_as_json() -> None:
    pydantic = pytest.importorskip("pydantic")
    model: Any = pydantic.create_model("Order", number=(int, ...))
    app = Detent()

    def sync(order: Any) -> None: ...

    sync.__annotations__["order"] = model
    app.job(cron="0 9 * * *", payload={"order": model(number=7)})(sync)
    assert app.jobs[0]["payload"] == {"order": {"number": 7}}


def test_an_annotation_that_is_defined_later_is_no_obstacle_to_a_payload() -> None:
    app = Detent()

    def sync(order: Any) -> None: ...

    sync.__annotations__["order"] = "DefinedLater"
    app.job(cron="0 9 * * *", payload={"order": {"number": 7}})(sync)
    with pytest.raises(UsageError, match="DefinedLater"):
        app.check()
