"""detent: every tick is recorded exactly once, as a run or with the reason why it did not run.

Each public name is imported on first use, so that importing the package stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.version import __version__

if TYPE_CHECKING:
    from detent.client import AsyncClient, Client
    from detent.errors import Discard, NotRetryable, Retry, RunFailed
    from detent.sdk.app import Detent
    from detent.sdk.dependencies import Depends
    from detent.sdk.handle import BlockingHandle, Handle
    from detent.sdk.task import Task
    from detent.targets.run import HandlerRun as Run

__all__ = [
    "AsyncClient",
    "BlockingHandle",
    "Client",
    "Depends",
    "Detent",
    "Discard",
    "Handle",
    "NotRetryable",
    "Retry",
    "Run",
    "RunFailed",
    "Task",
    "__version__",
]

_DEFINED_IN = {
    "AsyncClient": ("detent.client", "AsyncClient"),
    "BlockingHandle": ("detent.sdk.handle", "BlockingHandle"),
    "Client": ("detent.client", "Client"),
    "Depends": ("detent.sdk.dependencies", "Depends"),
    "Detent": ("detent.sdk.app", "Detent"),
    "Discard": ("detent.errors", "Discard"),
    "Handle": ("detent.sdk.handle", "Handle"),
    "NotRetryable": ("detent.errors", "NotRetryable"),
    "Retry": ("detent.errors", "Retry"),
    "Run": ("detent.targets.run", "HandlerRun"),
    "RunFailed": ("detent.errors", "RunFailed"),
    "Task": ("detent.sdk.task", "Task"),
}


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'detent' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _DEFINED_IN[name]
    return getattr(import_module(module), attribute)
