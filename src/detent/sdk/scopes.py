"""The values of dependencies and what surrounds a run: one scope per worker, and one per run inside it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from detent.sdk.binding import Binding
from detent.sdk.dependencies import Dependency, Overrides, Provider, name_of, needs_of
from detent.sdk.steps import Ended, HalfWay, Steps, awaited, called
from detent.targets.run import HandlerRun


class ValueScope:
    """Values that providers made, each once, and the generators that wait for the end of the scope."""

    def __init__(self, overrides: Overrides, worker: ValueScope | None = None, run: HandlerRun | None = None) -> None:
        """`worker`: the scope of the worker, if this is the scope of a run."""
        self._overrides = overrides
        self._worker = worker
        self._run = run
        self._values: dict[Provider, Any] = {}
        self._open: list[HalfWay] = []

    def close(self, ended: Ended) -> Steps[Ended]:
        """Continue the generators, the last one first; how the whole ended."""
        while self._open:
            ended = yield from self._open.pop().close(ended)
        return ended

    def values(self, dependencies: dict[str, Dependency]) -> Steps[Ended]:
        """The values by the names of their parameters, or the first error."""
        found = {}
        for name, dependency in dependencies.items():
            ended = yield from self._value(dependency)
            if ended.error is not None:
                return ended
            found[name] = ended.result
        return Ended(found)

    def enter(self, surrounding: Provider) -> Steps[Ended]:
        """Open a middleware: a generator that also sees the result."""
        ended = yield from self._call(surrounding)
        if ended.error is not None:
            return ended
        half = HalfWay(ended.result, name_of(surrounding), sees_result=True)
        return (yield from self._opened(half))

    def _value(self, dependency: Dependency) -> Steps[Ended]:
        if dependency.scope == "worker" and self._worker is not None:
            return (yield from self._worker._value(dependency))
        provider = self._overrides.get(dependency.provider, dependency.provider)
        if provider not in self._values:
            ended = yield from self._make(provider)
            if ended.error is not None:
                return ended
            self._values[provider] = ended.result
        return Ended(self._values[provider])

    def _make(self, provider: Provider) -> Steps[Ended]:
        ended = yield from self._call(provider)
        if ended.error is not None:
            return ended
        if inspect.isgeneratorfunction(provider) or inspect.isasyncgenfunction(provider):
            return (yield from self._opened(HalfWay(ended.result, name_of(provider))))
        if inspect.isawaitable(ended.result):
            ended = yield awaited(ended.result)
        return ended

    def _call(self, provider: Provider) -> Steps[Ended]:
        needs = needs_of(provider)
        values = yield from self.values(needs.dependencies)
        if values.error is not None:
            return values
        return called(provider, **values.result, **({} if needs.run is None else {needs.run: self._run}))

    def _opened(self, half: HalfWay) -> Steps[Ended]:
        ended = yield from half.open()
        if ended.error is None:
            self._open.append(half)
        return ended


def attempt(
    binding: Binding, run: HandlerRun, middleware: Sequence[Provider], worker: ValueScope, overrides: Overrides
) -> Steps[Ended]:
    """Call the handler inside the middleware, with its arguments and the values of its dependencies."""
    scope = ValueScope(overrides, worker, run)
    ended = yield from _inside(binding, run, middleware, scope)
    return (yield from scope.close(ended))


def _inside(binding: Binding, run: HandlerRun, middleware: Sequence[Provider], scope: ValueScope) -> Steps[Ended]:
    for surrounding in middleware:
        ended = yield from scope.enter(surrounding)
        if ended.error is not None:
            return ended
    # First: a payload that does not fit opens nothing.
    arguments = called(lambda: binding.arguments(run.payload if binding.takes_payload else None))
    if arguments.error is not None:
        return arguments
    values = yield from scope.values(binding.signature.dependencies)
    if values.error is not None:
        return values
    ended = called(binding.call_with, run, {**arguments.result, **values.result})
    if inspect.isawaitable(ended.result):
        ended = yield awaited(ended.result)
    return ended if ended.error is not None else called(binding.json_result, ended.result)
