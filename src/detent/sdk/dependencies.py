"""What a function needs besides its arguments: `db: Session = Depends(open_session)`.

A provider is a function, a coroutine, a generator or an async generator: what it returns or yields is the value, and a
generator continues after its `yield` when the run (or the worker) has ended. Here is the declaration and its rules; no
provider is called. `scopes.py` calls them.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, overload

from detent.errors import UsageError
from detent.sdk.signature import is_run

Value = TypeVar("Value")
Scope = Literal["run", "worker"]
Provider = Callable[..., Any]
Overrides = Mapping[Provider, Provider]

_ASSIGNED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Dependency:
    """The default of a parameter whose value a provider makes."""

    __slots__ = ("provider", "scope")
    is_dependency: ClassVar[bool] = True

    def __init__(self, provider: Provider, scope: Scope) -> None:
        self.provider = provider
        self.scope = scope

    def __repr__(self) -> str:
        return f"Depends({name_of(self.provider)}, scope={self.scope!r})"


@overload
def Depends(provider: Callable[..., AsyncIterator[Value]], *, scope: Scope = ...) -> Value: ...
@overload
def Depends(provider: Callable[..., Iterator[Value]], *, scope: Scope = ...) -> Value: ...
@overload
def Depends(provider: Callable[..., Awaitable[Value]], *, scope: Scope = ...) -> Value: ...
@overload
def Depends(provider: Callable[..., Value], *, scope: Scope = ...) -> Value: ...
def Depends(provider: Provider, *, scope: Scope = "run") -> Any:  # noqa: N802 - it is written where a class would be
    """The default of a parameter that `provider` fills in: once per run, or with `scope="worker"` once per worker."""
    if not callable(provider):
        raise UsageError(f"Depends({provider!r}) needs a function that makes the value.")
    if scope not in get_args(Scope):
        raise UsageError(f"Depends({name_of(provider)}, scope={scope!r}): the scope is 'run' or 'worker'.")
    return Dependency(provider, scope)


class Needs(NamedTuple):
    """The parameters that the worker fills in: the one that takes the run, and those that providers make."""

    run: str | None
    dependencies: dict[str, Dependency]


def dependencies_of(function: Callable[..., Any]) -> dict[str, Dependency]:
    return {name: each.default for name, each in _parameters(function).items() if isinstance(each.default, Dependency)}


def needs_of(function: Callable[..., Any]) -> Needs:
    """What a provider or a middleware takes: the run, dependencies, and parameters with defaults of their own."""
    run: str | None = None
    dependencies = {}
    for name, parameter in _parameters(function).items():
        if isinstance(parameter.default, Dependency):
            dependencies[name] = parameter.default
        elif is_run(function, parameter):
            run = name
        elif parameter.default is parameter.empty and parameter.kind not in _ASSIGNED:
            raise UsageError(
                f"{name_of(function)} has the parameter {name!r}, which nothing fills in: annotate it as Run, give it "
                "the default Depends(…), or another default."
            )
    for filled in (*dependencies, *([] if run is None else [run])):
        if _parameters(function)[filled].kind is inspect.Parameter.POSITIONAL_ONLY:
            raise UsageError(f"{name_of(function)} takes {filled!r} by position only: remove the / from its signature.")
    return Needs(run, dependencies)


def check_dependencies(function: Callable[..., Any], overrides: Overrides | None = None) -> None:
    """UsageError: a provider cannot be called, depends on itself, or lives longer than what it depends on."""
    for dependency in dependencies_of(function).values():
        _check(dependency, (), overrides or {})


def _check(dependency: Dependency, path: tuple[Provider, ...], overrides: Overrides) -> None:
    provider = overrides.get(dependency.provider, dependency.provider)
    if provider in path:
        circle = " → ".join(map(name_of, (*path[path.index(provider) :], provider)))
        raise UsageError(f"These dependencies form a circle: {circle}. Remove one of them.")
    needs = needs_of(provider)
    if dependency.scope == "worker":
        _check_worker_scope(provider, needs)
    for each in needs.dependencies.values():
        _check(each, (*path, provider), overrides)


def _check_worker_scope(provider: Provider, needs: Needs) -> None:
    shorter = [name_of(each.provider) for each in needs.dependencies.values() if each.scope != "worker"]
    if needs.run is not None or shorter:
        what = "the run" if needs.run is not None else f"{shorter[0]}, which is made for each run"
        raise UsageError(
            f"{name_of(provider)} is made once per worker and needs {what}: remove scope='worker', or that parameter."
        )


def worker_scoped(function: Callable[..., Any], overrides: Overrides) -> Iterator[Dependency]:
    """What the function needs, directly or through other providers, and what is made once per worker."""
    for dependency in dependencies_of(function).values():
        yield from worker_scoped(overrides.get(dependency.provider, dependency.provider), overrides)
        if dependency.scope == "worker":
            yield dependency


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some functions that are written in C have no signature
        return {}
