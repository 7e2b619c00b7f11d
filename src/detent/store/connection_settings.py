"""What a connection asks of the server, and of the driver, when it is opened."""

from __future__ import annotations

from typing import Any

from detent.store import pooler
from detent.store.limits import STANDARD, StatementLimits


def session_settings(schema: str, limits: StatementLimits = STANDARD) -> dict[str, str]:
    """The settings that a connection asks for when it is opened."""
    return {
        "application_name": "detent",
        **pooler.role_settings(schema),
        **limits.settings(),
        **network_settings(),
    }


def driver_options(schema: str, limits: StatementLimits, *, pooled: bool) -> dict[str, Any]:
    """How the driver opens a connection."""
    common = {"timeout": 10, "command_timeout": limits.answer}
    if not pooled:
        return {**common, "server_settings": session_settings(schema, limits)}
    # A pooler keeps these two for each of its clients, and refuses all others.
    kept = {"application_name": "detent", "timezone": "UTC"}
    return {
        **common,
        "server_settings": kept,
        "statement_cache_size": 0,
        "connection_class": pooler.connection_class(limits),
    }


def network_settings() -> dict[str, str]:
    """Settings with which the server notices within seconds that a client has disappeared."""
    return {
        "tcp_keepalives_idle": "2",
        "tcp_keepalives_interval": "1",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": "5s",
    }
