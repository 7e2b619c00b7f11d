"""detent: every tick of every schedule becomes exactly one run.

The public names are loaded when they are first used, so that importing the package stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.version import __version__

if TYPE_CHECKING:
    from detent.client import AsyncClient, Client
    from detent.errors import NotRetryable, RetryLater
    from detent.sdk.app import Detent
    from detent.targets.run import Run

__all__ = ["AsyncClient", "Client", "Detent", "NotRetryable", "RetryLater", "Run", "__version__"]

_HOMES = {
    "AsyncClient": "detent.client",
    "Client": "detent.client",
    "Detent": "detent.sdk.app",
    "NotRetryable": "detent.errors",
    "RetryLater": "detent.errors",
    "Run": "detent.targets.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'detent' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
