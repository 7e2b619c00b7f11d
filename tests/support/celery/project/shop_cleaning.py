"""A task in a module that only Celery imports, and an entry of beat that exists once the app is finalized."""

from __future__ import annotations

from typing import Any

from shop import app  # type: ignore[import-not-found]  # from this folder


@app.task(name="shop.purge", ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no types
def purge() -> str:
    return "purged"


@app.on_after_finalize.connect  # type: ignore[untyped-decorator]  # Celery has no types
def add_entries(sender: Any, **_: Any) -> None:
    sender.add_periodic_task(900.0, purge.s(), name="purge")
