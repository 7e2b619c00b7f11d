"""What an app declares around its runs: life-cycle hooks, middleware, and other providers for tests."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from detent.errors import UsageError
from detent.sdk.binding import Binding
from detent.sdk.dependencies import Provider, check_dependencies, name_of
from detent.sdk.middleware import check_middleware

Hook = TypeVar("Hook", bound=Callable[[], Any])
Middleware = TypeVar("Middleware", bound=Callable[..., Any])
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any] | AsyncIterator[Any]]


class AppLifecycle:
    """The part of an app that says what surrounds its runs."""

    bindings: dict[str, Binding]

    def __init__(self, lifespan: Lifespan | None = None) -> None:
        self.lifespan = lifespan
        self.startup_hooks: list[Callable[[], Any]] = []
        self.shutdown_hooks: list[Callable[[], Any]] = []
        self.middlewares: list[Provider] = []
        self.overrides: dict[Provider, Provider] = {}

    def on_startup(self, hook: Hook) -> Hook:
        """Call this function, which may be a coroutine, before a worker runs anything of this app."""
        self.startup_hooks.append(_checked_hook(hook, "on_startup"))
        return hook

    def on_shutdown(self, hook: Hook) -> Hook:
        """Call this function, which may be a coroutine, after the last run of a worker has ended."""
        self.shutdown_hooks.append(_checked_hook(hook, "on_shutdown"))
        return hook

    def middleware(self, surrounding: Middleware) -> Middleware:
        """Surround every run with this generator function: the part before its `yield` runs first. The first one that
        is registered is the outermost."""
        check_middleware(surrounding)
        self.middlewares.append(surrounding)
        return surrounding

    @contextmanager
    def override(self, provider: Provider, other: Provider) -> Iterator[None]:
        """In tests: use `other` where functions depend on `provider`, inside this block."""
        before = dict(self.overrides)
        self.overrides[provider] = other
        try:
            self.check_overrides()
            yield
        finally:
            self.overrides.clear()
            self.overrides.update(before)

    def check_overrides(self) -> None:
        """UsageError: a dependency cannot be made with the providers that are in force."""
        for function in self.surroundings():
            check_dependencies(function, self.overrides)

    def surroundings(self) -> list[Callable[..., Any]]:
        """Everything whose dependencies are filled in: functions as the user wrote them, and middleware."""
        return [*(binding.function for binding in self.bindings.values()), *self.middlewares]


def _checked_hook(hook: Any, decorator: str) -> Any:
    if not callable(hook):
        raise UsageError(f"Write @app.{decorator} without parentheses above a function.")
    needed = [each for each in inspect.signature(hook).parameters.values() if each.default is each.empty]
    if any(each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in needed):
        raise UsageError(f"The hook {name_of(hook)} takes {needed[0].name!r}: a hook takes no argument.")
    if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
        raise UsageError(f"The hook {name_of(hook)} yields: write it as Detent(lifespan=…), or without yield.")
    return hook
