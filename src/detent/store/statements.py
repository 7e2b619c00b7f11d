"""Every statement by its name."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def statement(name: str) -> str:
    return resources.files("detent.store").joinpath("sql", f"{name}.sql").read_text()
