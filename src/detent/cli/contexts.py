"""`detent context …`: servers under names."""

from __future__ import annotations

import os
from pathlib import Path

import click

from detent.cli import output
from detent.cli.base import command, group, option
from detent.cli.context_file import Contexts, check_name, contexts_path, read_contexts, write_contexts
from detent.cli.output import Column
from detent.cli.session import CONTEXT, server_options, session, shapes
from detent.errors import Conflict, UsageError
from detent.settings.settings import Context

context = group("context", "Name the servers you work with, and switch between them.", panel="Look after it")

COLUMNS = (
    Column("", lambda one: "*" if one["current"] else ""),
    Column("NAME", lambda one: one["name"]),
    Column("URL", lambda one: one["url"]),
    Column("KEY FILE", lambda one: one["key_file"], extra=True),
)


def _complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        return [name for name in read_contexts().by_name if name.startswith(incomplete)]
    except UsageError:  # a shell that is completing has nowhere to show an error
        return []


_name = click.argument("name", shell_complete=_complete_name)


@command(context, "list", examples=("detent context list",))
@shapes(quiet="names only")
def list_contexts() -> None:
    """List the contexts; a star marks the current one."""
    contexts = read_contexts()
    items = [
        {
            "name": name,
            "url": one.url,
            "key_file": one.key_file and str(one.key_file),
            "current": name == contexts.current,
        }
        for name, one in sorted(contexts.by_name.items())
    ]
    empty = "There are no contexts: make one with `detent context add NAME --url URL`."
    output.print_page({"items": items, "next_cursor": None}, COLUMNS, empty, identity="name")


@command(
    context,
    "add",
    examples=("detent context add prod --url https://detent.example.org --key-file prod.key",),
)
@click.argument("name")
@option("--url", required=True, metavar="URL", help="Where the server is.")
@option("--key-file", metavar="FILE", help="A file that holds the API key; it is read when the key is needed.")
@option("--use", is_flag=True, help="Make it the current one.")
@option("--replace", is_flag=True, help="Change the context of this name, if there is one.")
def add(name: str, url: str, key_file: str | None, use: bool, replace: bool) -> None:
    """Name a server."""
    contexts = read_contexts()
    if check_name(name) in contexts.by_name and not replace:
        raise Conflict(f"There is already a context {name!r}: give --replace to change it.")
    from detent.client.documents import Client

    Client(url).close()  # refuses what is not an address
    path = None if key_file is None else Path(key_file).expanduser().absolute()
    current = name if use or not contexts.by_name else contexts.current
    write_contexts(Contexts(current, {**contexts.by_name, name: Context(name, url, path)}))
    output.say(f"Added context {name}{', and it is the current one' if current == name else ''}.")
    if path is not None and not path.exists():
        output.say(f"warning: {path} does not exist yet: write the key into it.")


@command(context, "use", examples=("detent context use production", "detent context use --none"))
@click.argument("name", required=False, shell_complete=_complete_name)
@option("--none", is_flag=True, help="Use no context: settings and defaults say where the server is.")
def use(name: str | None, none: bool) -> None:
    """Make a context the current one."""
    if (name is None) != none:
        raise UsageError("Give either the NAME of a context or --none.")
    contexts = read_contexts()
    chosen = contexts.chosen(name) if name else None
    write_contexts(Contexts(name, contexts.by_name))
    output.say(f"Commands now ask {chosen.url}." if chosen else "Commands now use no context.")
    for variable in (CONTEXT, "DETENT_API_URL"):
        if os.environ.get(variable):
            output.say(f"warning: {variable} is set to {os.environ[variable]} and wins over the current context.")


@command(context, "remove", examples=("detent context remove production",))
@_name
def remove(name: str) -> None:
    """Forget a context; its key file is left alone."""
    contexts = read_contexts()
    contexts.chosen(name)
    left = {other: one for other, one in contexts.by_name.items() if other != name}
    write_contexts(Contexts(None if contexts.current == name else contexts.current, left))
    output.say(f"Removed context {name}.")


@command(context, "show", examples=("detent context show",))
@server_options(hidden=True)
@shapes(quiet="its name only")
def show() -> int:
    """Say which server commands ask, and why."""
    from detent.cli.session import client_settings

    settings = client_settings()
    document = {"url": settings.api_url, "from": settings.origins["api_url"], "file": str(contexts_path())}
    if session().shape == "json":
        output.print_json(document)
    else:
        print(f"{document['url']} ({document['from']})")
    return 0
