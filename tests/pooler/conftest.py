"""Everything here goes through PgBouncer in transaction mode; only `look` does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.sessions import look, looking_often, start, store

__all__ = ["look", "looking_often", "start", "store"]


@pytest.fixture
def reach(pooled_url: str) -> dict[str, Any]:
    return {"url": pooled_url, "pooled": True}
