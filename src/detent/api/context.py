"""What every route is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from detent.settings import Settings
from detent.store import Store

PREFIX = "/api/v1"


@dataclass(frozen=True, slots=True)
class Api:
    store: Store
    settings: Settings
    readiness: Callable[[], dict[str, bool]]

    @property
    def max_body_bytes(self) -> int:
        return self.settings.max_payload_bytes + 65_536
