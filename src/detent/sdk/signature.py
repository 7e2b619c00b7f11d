"""The parameters of a handler, read when it is registered: what cannot work is refused there, not at the first run."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from detent.errors import UsageError

if typing.TYPE_CHECKING:
    from detent.domain.json_values import JsonType

RUN_NAMES = frozenset({"Run", "HandlerRun", "detent.Run"})
_EMPTY = inspect.Parameter.empty


class HandlerParameter(NamedTuple):
    """A parameter that is filled from the payload."""

    name: str
    kind: Any
    default: Any
    annotation: Any

    @property
    def required(self) -> bool:
        return self.default is _EMPTY


class HandlerSignature(NamedTuple):
    """`takes_run`: its first parameter is the run. `dependencies` are its parameters whose defaults are dependencies.
    Annotations are as they are written, possibly as text."""

    takes_run: bool
    parameters: dict[str, HandlerParameter]
    dependencies: dict[str, Any]
    returns: Any


def read_signature(function: Callable[..., Any], *, named: bool = False) -> HandlerSignature:
    """Raises UsageError for a function that cannot be a handler. `named`: it gets a name where it is registered."""
    name = _checked_name(function, named=named)
    found = list(_signature(function).parameters.values())
    takes_run = bool(found) and is_run(function, found[0])
    rest = found[1:] if takes_run else found
    for parameter in rest:
        _check_kind(name, parameter)
        if is_run(function, parameter):
            raise UsageError(f"{name}: the run is the parameter {parameter.name!r}: make it the first one.")
    dependencies = {each.name: each.default for each in rest if is_dependency(each.default)}
    own = {
        each.name: HandlerParameter(each.name, each.kind, each.default, each.annotation)
        for each in rest
        if each.name not in dependencies
    }
    return HandlerSignature(takes_run, own, dependencies, _signature(function).return_annotation)


def is_dependency(default: object) -> bool:
    return bool(getattr(type(default), "is_dependency", False))


def is_run(function: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    """Whether the run belongs there: by its annotation, also if that is imported for type checkers only, or by the name
    `run` without one."""
    if parameter.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
        return False
    annotation = parameter.annotation
    if annotation is _EMPTY:
        return parameter.name == "run"
    if isinstance(annotation, str):
        named = inspect.unwrap(function).__globals__.get(annotation)
        return _is_run_class(named) or (named is None and annotation in RUN_NAMES)
    return _is_run_class(annotation)


def resolve(function: Callable[..., Any], name: str, annotation: Any, local: Mapping[str, Any] | None = None) -> Any:
    """An annotation as a type, also if it is text (`from __future__ import annotations`). Raises NameError."""
    if annotation is _EMPTY:
        return Any
    plain = inspect.unwrap(function)

    class Holder:
        __annotations__ = {name: annotation}

    hints = typing.get_type_hints(Holder, getattr(plain, "__globals__", {}), dict(local or {}), include_extras=True)
    return hints[name]


def json_type(function: Callable[..., Any], parameter: HandlerParameter, local: Mapping[str, Any] | None) -> JsonType:
    """Raises NameError if a name in the annotation is not defined yet, and UsageError if JSON cannot carry the type."""
    from detent.domain.json_values import JsonType, NoJsonForm, json_of

    name = function.__qualname__
    try:
        found = JsonType(resolve(function, parameter.name, parameter.annotation, local))
    except (NoJsonForm, SyntaxError) as error:
        raise UsageError(
            f"{name}: the parameter {parameter.name!r} cannot be sent as JSON ({error}): use a dataclass, a Struct, a "
            "pydantic model, or plain types, and look other things up in the function or with Depends()."
        ) from error
    if not parameter.required:
        try:
            json_of(parameter.default)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"{name}: the default of {parameter.name!r} has no JSON form ({error}): use None, and decide in the "
                "function."
            ) from error
    return found


def _is_run_class(kind: object) -> bool:
    module = sys.modules.get("detent.targets.run")
    return module is not None and kind is module.HandlerRun


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # annotations are evaluated lazily there, and may not be possible yet
        from annotationlib import Format  # type: ignore[import-not-found,unused-ignore] # not in older versions

        return inspect.signature(function, annotation_format=Format.FORWARDREF)  # type: ignore[call-arg,unused-ignore]
    return inspect.signature(function)


def _checked_name(function: object, *, named: bool) -> str:
    """The name for messages. Raises UsageError if it is no function that a worker can look up by its name."""
    if inspect.ismethod(function):
        raise UsageError(
            f"{function.__qualname__} is bound to an object, which a worker does not have: register a function of the "
            "module, or a static method."
        )
    if not inspect.isroutine(function) or not hasattr(function, "__qualname__"):
        raise UsageError(f"{function!r} is not a function: write `def name(…): …` and register that.")
    if function.__name__ == "<lambda>" and not named:
        raise UsageError("A lambda has no name that a worker could look up: write `def name(…): …` instead.")
    name: str = function.__qualname__
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{name} is a generator, which does nothing when it is called: return the result, no `yield`.")
    return name


def _check_kind(name: str, parameter: inspect.Parameter) -> None:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        raise UsageError(f"{name} takes *{parameter.name}, which has no names: name each parameter, or take one list.")
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        raise UsageError(f"{name} takes **{parameter.name}: name each parameter, or take one dict.")
    if parameter.name == "self" and parameter.annotation is _EMPTY:
        raise UsageError(f"{name} takes self: register a function of the module, or a static method.")
