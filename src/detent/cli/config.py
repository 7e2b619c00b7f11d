"""`detent config show`: every setting, and where its value comes from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from detent.cli import output
from detent.cli.base import command, group, option
from detent.cli.invocation import client_settings, format_options, server_options
from detent.cli.output import Column, Item

if TYPE_CHECKING:
    from detent.settings.settings import Settings

config = group("config", "Show the settings.", panel="Administration")

HIDDEN = "(hidden)"
UNSET = {
    "database_url": "the embedded PostgreSQL in data_dir",
    "misfire_grace_seconds": "auto: from the interval of each job",
    "catchup_rate": "auto: twice the tick rate of a partition",
}

NAME = Column("SETTING", lambda one: one["name"])
VALUE = Column("VALUE", lambda one: one["value"], lambda one, at: _shown(one), least=20)
ORIGIN = Column("FROM", lambda one: one["origin"])

_PASSWORD = re.compile(r"((?:ssl)?password=)[^&]*", re.IGNORECASE)


@command(config, "show", examples=("detent config show --origin",))
@option("--origin", is_flag=True, help="Show where each value comes from.")
@server_options(hidden=True)
@format_options(quiet="names only")
def show(origin: bool) -> None:
    """List every setting with its value; secrets are hidden."""
    settings = client_settings()
    items = [_item(settings, name) for name in settings.origins]
    columns = (NAME, VALUE, ORIGIN) if origin else (NAME, VALUE)
    output.print_page({"items": items, "next_cursor": None}, columns, "There are no settings.", identity="name")


def _item(settings: Settings, name: str) -> dict[str, Any]:
    return {"name": name, "value": shown_value(settings, name), "origin": settings.origins[name]}


def _shown(item: Item) -> str:
    value = item["value"]
    if value is None:
        return UNSET.get(item["name"], "")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(value) if isinstance(value, list) else str(value)


def shown_value(settings: Settings, name: str) -> Any:
    """The value as JSON, with secrets hidden."""
    from detent.settings.settings import SETTINGS

    value = getattr(settings, name)
    if name in ("database_url", "coordinator") and value is not None:
        return without_password(value)
    if SETTINGS[name].metadata["secret"] and value is not None:
        return HIDDEN
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, str | int | float | None) else str(value)


def without_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = parts.netloc.rpartition("@")[0].partition(":")[0]
    netloc = f"{user}@{host}" if user else host
    return _PASSWORD.sub(rf"\1{HIDDEN}", parts._replace(netloc=netloc).geturl())
