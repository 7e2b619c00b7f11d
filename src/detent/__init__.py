"""detent: every tick is recorded exactly once, as a run or with the reason why it did not run.

Each public name is imported on first use, so that importing the package stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.version import __version__

if TYPE_CHECKING:
    from detent.client import AsyncClient, Client
    from detent.errors import NotRetryable, RetryLater
    from detent.sdk.app import Detent
    from detent.sdk.dependencies import Depends
    from detent.targets.run import HandlerRun as Run

__all__ = ["AsyncClient", "Client", "Depends", "Detent", "NotRetryable", "RetryLater", "Run", "__version__"]

_DEFINED_IN = {
    "AsyncClient": ("detent.client", "AsyncClient"),
    "Client": ("detent.client", "Client"),
    "Depends": ("detent.sdk.dependencies", "Depends"),
    "Detent": ("detent.sdk.app", "Detent"),
    "NotRetryable": ("detent.errors", "NotRetryable"),
    "RetryLater": ("detent.errors", "RetryLater"),
    "Run": ("detent.targets.run", "HandlerRun"),
}


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'detent' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _DEFINED_IN[name]
    return getattr(import_module(module), attribute)
