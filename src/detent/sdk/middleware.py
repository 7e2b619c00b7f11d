"""Code around every run: a generator function that yields once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from detent.errors import UsageError
from detent.sdk.dependencies import check_dependencies, name_of, needs_of


def check_middleware(function: Callable[..., Any]) -> None:
    """UsageError: this cannot surround a run."""
    if not inspect.isgeneratorfunction(function) and not inspect.isasyncgenfunction(function):
        raise UsageError(
            f"The middleware {name_of(function)} is not a generator: what comes before its yield runs before the "
            "function of a run, and what comes after it runs afterwards."
        )
    needs_of(function)
    check_dependencies(function)
