"""Everything here goes through PgBouncer in transaction mode; only `look` does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.sessions import looking_often, start

__all__ = ["looking_often", "start"]


@pytest.fixture
def reach(pooled_url: str) -> dict[str, Any]:
    return {"url": pooled_url, "pooled": True}
