"""Steps of a handler, whose results are stored, so that the next attempt of the run does not repeat them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from detent.domain.effects import MAX_STEP_BYTES, MAX_STEPS, NewStep, check_step_name
from detent.errors import NotRetryable, UsageError
from detent.targets.once import Wait
from detent.targets.results import as_json

if TYPE_CHECKING:
    from detent.domain.json_values import JsonType
    from detent.targets.run import HandlerRun

_UNLIMITED = 1 << 40


class BadStep(NotRetryable):
    """The result of a step cannot be stored. A retry would return the same."""


class StepLedger(NamedTuple):
    """Where the steps of one attempt are stored: reads all of its run, and adds one."""

    load: Callable[[], Awaitable[dict[str, str | None]]]
    add: Callable[[NewStep], Awaitable[None]]


class RunSteps:
    """The steps of one attempt."""

    def __init__(self, run: HandlerRun, ledger: StepLedger) -> None:
        self._run = run
        self._ledger = ledger
        self._stored: dict[str, str | None] | None = None
        self._used: set[str] = set()

    async def perform(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The stored result of the step, or else that of the function, which is then stored."""
        kind = self._begin(name, function)
        stored = await self._load()
        if name in stored:
            return kind.value(stored[name])
        began = self._check(name, stored)
        try:
            result = function(*args, **kwargs)
            if inspect.isawaitable(result):
                result = await result
        except BaseException:
            self._used.discard(name)  # the handler may try it again
            raise
        return await self._keep(name, kind, result, began)

    def perform_sync(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any, wait: Wait) -> Any:
        """As `perform`, in a thread: `wait` awaits on the handlers' loop."""
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"Step {name!r} is a coroutine: call run.step in an async handler, and await it.")
        kind = self._begin(name, function)
        stored = wait(self._load())
        if name in stored:
            return kind.value(stored[name])
        began = self._check(name, stored)
        try:
            result = function(*args, **kwargs)
        except BaseException:
            self._used.discard(name)
            raise
        return wait(self._keep(name, kind, result, began))

    def _begin(self, name: str, function: Callable[..., Any]) -> StepResult:
        check_step_name(name)
        if not callable(function):
            raise UsageError(
                f"Step {name!r} got {function!r}: give the function and its arguments, without calling it."
            )
        if name in self._used:
            raise UsageError(
                f"Step {name!r} was used before in this attempt: give each step a name of its own, such as "
                f"{name + '#2'!r}."
            )
        kind = StepResult(name, function)
        self._used.add(name)
        return kind

    async def _load(self) -> dict[str, str | None]:
        if self._stored is None:
            found = await self._ledger.load()
            if self._stored is None:  # two steps may begin at the same time
                self._stored = found
        return self._stored

    def _check(self, name: str, stored: dict[str, str | None]) -> float:
        if len(stored) >= MAX_STEPS:
            raise BadStep(f"The run has {MAX_STEPS:,} steps, so {name!r} cannot be stored: enqueue runs for its parts.")
        self._run.heartbeat()
        return monotonic()

    async def _keep(self, name: str, kind: StepResult, result: Any, began: float) -> Any:
        text = kind.text(result)
        mask = self._run.mask
        if mask is not None and text is not None and mask.text(text) != text:
            raise BadStep(
                f"The result of step {name!r} contains the value of a secret, which is not stored: return something "
                "else, and take the secret from the payload again."
            )
        await self._ledger.add(NewStep(name, text, timedelta(seconds=monotonic() - began)))
        assert self._stored is not None
        self._stored[name] = text
        return kind.value(text)


class StepResult:
    """The result of a function as JSON and back, by its annotation if it has one. The first attempt gets what was
    stored too, so that all attempts get the same."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        from detent.domain.json_values import NoJsonForm

        self._name = name
        try:
            self._type = _json_type(function)
        except NoJsonForm as error:
            raise UsageError(
                f"The result of step {name!r} cannot be stored ({error}): have the function return a dataclass, a "
                "Struct, a pydantic model, or plain types."
            ) from error

    def text(self, result: Any) -> str | None:
        if result is None:
            return None
        text = as_json(result, _UNLIMITED) if self._type is None else self._encoded(self._type, result)
        if text is not None and len(text.encode()) > MAX_STEP_BYTES:
            raise BadStep(
                f"The result of step {self._name!r} has {len(text.encode()):,} bytes and may have {MAX_STEP_BYTES:,}: "
                "store it elsewhere, and return where."
            )
        return text

    def _encoded(self, kind: JsonType, result: Any) -> str:
        try:
            return kind.encoded(result).decode().replace("\\u0000", "\\ufffd")
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise BadStep(
                f"Step {self._name!r} returned a value that is not of its annotated type ({error}): correct either."
            ) from error

    def value(self, text: str | None) -> Any:
        if text is None:
            return None
        decoded = msgspec.json.decode(text)
        if self._type is None:
            return decoded
        try:
            return self._type.from_json(decoded)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise BadStep(
                f"The stored result of step {self._name!r} is not of its annotated type ({error}): the function has "
                "changed since; give the step a new name."
            ) from error


def _json_type(function: Callable[..., Any]) -> JsonType | None:
    """None: the function does not say, or says nothing that can be checked."""
    from detent.domain.json_values import JsonType

    while isinstance(function, partial):
        function = function.func
    try:
        annotation = get_type_hints(function, include_extras=True).get("return", Any)
    except (TypeError, NameError, AttributeError):
        return None
    if get_origin(annotation) in (Awaitable, Coroutine):
        annotation = get_args(annotation)[-1]
    return None if annotation in (Any, None, type(None)) else JsonType(annotation)
