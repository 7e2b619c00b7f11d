"""The HTTP client of the REST API.

`Client` blocks, `AsyncClient` is awaited, and `JsonClient` returns the server's JSON instead of typed results. Each
verb is described once, in the module of its noun.
"""

from __future__ import annotations

from detent.client.async_client import AsyncClient
from detent.client.json_client import JsonClient
from detent.client.sync_client import Client

__all__ = ["AsyncClient", "Client", "JsonClient"]
