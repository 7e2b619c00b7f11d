"""A function and its payload: arguments to JSON where a run is enqueued, JSON to arguments on the worker.

The payload of a function with parameters of its own is an object `{parameter: value}`. A function that takes only its
run, or nothing, has any payload. What runners call (`handler`) takes exactly one argument, the run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any

from detent.errors import PayloadMismatch, UsageError
from detent.sdk.signature import HandlerParameter, json_type, read_signature, resolve

if TYPE_CHECKING:
    from detent.domain.json_values import JsonType
    from detent.targets.run import HandlerRun

NOTHING: Mapping[str, Any] = {}


class Binding:
    def __init__(
        self, function: Callable[..., Any], local: Mapping[str, Any] | None = None, *, named: bool = False
    ) -> None:
        """`named`: it is registered under a name of its own. `local` are names that annotations may use, besides those
        of the function's module. Names that are not defined yet are looked up again at the first use, or by
        `check`."""
        self.function = function
        self.signature = read_signature(function, named=named)
        self.is_async = inspect.iscoroutinefunction(function)
        self._types: dict[str, JsonType] = {}
        self._undefined: dict[str, NameError] = {}
        self._find_types(local)

    @property
    def name(self) -> str:
        return str(self.function.__qualname__)

    @property
    def undecided(self) -> bool:
        """Whether annotations use names that are not defined yet."""
        return bool(self._undefined)

    @property
    def takes_payload(self) -> bool:
        """Whether the payload is its parameters; else it is any JSON."""
        return bool(self.signature.parameters)

    def check(self) -> None:
        """Raise UsageError for what could not be decided when it was registered."""
        self._find_types(None)
        for name, error in self._undefined.items():
            raise UsageError(
                f"{self.name}: the annotation of {name!r} cannot be read ({error}): import that name where the program "
                "runs, not only under TYPE_CHECKING."
            ) from error

    # --- where a run is enqueued ---

    def payload(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of a call. Raises UsageError for arguments that do not fit."""
        try:
            given = self._callable_signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise UsageError(f"{self.name}: {error}.") from error
        return self._encoded(given)

    def check_payload(self, payload: Any, *, complete: bool) -> Any:
        """The payload of a job as JSON. `complete`: every parameter without a default needs a value."""
        if not self.takes_payload:
            return payload
        if not isinstance(payload, Mapping | None):
            raise UsageError(f"{self.name}: the payload is {payload!r}: give its parameters as an object.")
        given = dict(payload or {})
        for name in given:
            if name not in self.signature.parameters:
                raise UsageError(
                    f"{self.name}: the payload has {name!r}, which is no parameter: it takes {self._parameter_names()}."
                )
        missing = [each.name for each in self.signature.parameters.values() if each.required and each.name not in given]
        if complete and missing:
            raise UsageError(
                f"{self.name} needs {', '.join(map(repr, missing))} at each tick: give payload={{{missing[0]!r}: …}}, "
                "or the parameter a default."
            )
        return self._encoded(given) if given or payload is not None else None

    def _encoded(self, given: Mapping[str, Any]) -> dict[str, Any]:
        import msgspec

        self._check_types()
        payload = {}
        for name, value in given.items():
            try:
                payload[name] = msgspec.json.decode(self._types[name].encoded(value))
            except (TypeError, ValueError, RecursionError) as error:
                raise UsageError(f"{self.name}: the argument {name!r} does not fit: {_first_line(error)}.") from error
        return payload

    # --- on the worker ---

    @cached_property
    def handler(self) -> Callable[[HandlerRun], Any]:
        """What runners call: it takes the run, and is a coroutine function if the user's function is."""
        if self.signature.takes_run and not self.takes_payload and not self.signature.dependencies and not self._models:
            return self.function

        async def handle_async(run: HandlerRun) -> Any:
            return self.json_result(await self.call(run))

        def handle(run: HandlerRun) -> Any:
            return self.json_result(self.call(run))

        handler = update_wrapper(handle_async if self.is_async else handle, self.function)
        del handler.__wrapped__  # its signature is that of the handler
        return handler

    def call(self, run: HandlerRun, dependencies: Mapping[str, Any] = NOTHING) -> Any:
        """Call the function with its run, its payload, and these values of its dependencies."""
        return self.call_with(run, {**self.arguments(run.payload if self.takes_payload else None), **dependencies})

    def call_with(self, run: HandlerRun, named: dict[str, Any]) -> Any:
        """Call the function with its run and these arguments."""
        positional: list[Any] = [run] if self.signature.takes_run else []
        first = (each for each in self.signature.parameters.values() if each.kind is inspect.Parameter.POSITIONAL_ONLY)
        positional += [named.pop(each.name) for each in first if each.name in named]
        return self.function(*positional, **named)

    def arguments(self, payload: Any) -> dict[str, Any]:
        """The arguments that a payload has. Raises PayloadMismatch, which is not retried."""
        if not self.takes_payload:
            return {}
        if not isinstance(payload, Mapping | None):
            raise PayloadMismatch(f"{self.name} takes {self._parameter_names()}, and the payload is not an object.")
        given = payload or {}
        unknown = next((name for name in given if name not in self.signature.parameters), None)
        if unknown is not None:
            raise PayloadMismatch(
                f"{self.name} has no parameter {unknown!r}, which the payload has: it takes {self._parameter_names()}."
            )
        self._check_types()
        present = (each for each in self.signature.parameters.values() if self._is_given(each, given))
        return {each.name: self._decoded(each.name, given[each.name]) for each in present}

    def _is_given(self, parameter: HandlerParameter, payload: Mapping[str, Any]) -> bool:
        if parameter.name in payload:
            return True
        if parameter.required:
            raise PayloadMismatch(f"{self.name} needs {parameter.name!r}, which is not in the payload.")
        return False

    def _decoded(self, name: str, value: Any) -> Any:
        try:
            return self._types[name].from_json(value)
        except (TypeError, ValueError) as error:
            raise PayloadMismatch(
                f"{self.name}: {name!r} in the payload does not fit: {_first_line(error)}."
            ) from error

    # --- the result ---

    @cached_property
    def _models(self) -> bool:
        """Whether its result may have models of pydantic, which only this module can write as JSON."""
        from detent.domain.json_values import has_model

        try:
            return has_model(resolve(self.function, "return", self.signature.returns))
        except (NameError, SyntaxError, TypeError):
            return False

    def json_result(self, value: Any) -> Any:
        """What a runner can write as JSON."""
        if not self._models:
            return value
        from detent.domain.json_values import json_of

        return json_of(value)

    def result(self, value: Any) -> Any:
        """The result of a run as the function's return annotation says; JSON where it says nothing."""
        from detent.domain.json_values import JsonType, NoJsonForm

        try:
            return JsonType(resolve(self.function, "return", self.signature.returns)).from_json(value)
        except NameError:
            return value
        except NoJsonForm as error:
            raise UsageError(f"{self.name}: its result cannot be read as its annotation says ({error}).") from error
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"{self.name}: the result of the run is not what its annotation says: {_first_line(error)}."
            ) from error

    # --- types ---

    @cached_property
    def _callable_signature(self) -> inspect.Signature:
        return inspect.Signature(
            [
                inspect.Parameter(each.name, each.kind, default=each.default)
                for each in self.signature.parameters.values()
            ]
        )

    def _check_types(self) -> None:
        if self._undefined:
            self.check()

    def _find_types(self, local: Mapping[str, Any] | None) -> None:
        self._undefined = {}
        for name, parameter in self.signature.parameters.items():
            if name not in self._types:
                try:
                    self._types[name] = json_type(self.function, parameter, local)
                except NameError as error:
                    self._undefined[name] = error

    def _parameter_names(self) -> str:
        return ", ".join(map(repr, self.signature.parameters))


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split("\n", 3)[:3]).rstrip(". ")
