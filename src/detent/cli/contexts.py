"""`detent context …`: named servers."""

from __future__ import annotations

import os
from pathlib import Path

import click

from detent.cli import output
from detent.cli.base import command, group, option
from detent.cli.context_file import Contexts, check_name, contexts_path, read_contexts, write_contexts
from detent.cli.invocation import CONTEXT, format_options, invocation, server_options
from detent.cli.output import Column
from detent.cli.text import clean
from detent.errors import Conflict, UsageError
from detent.settings.settings import Context

context = group("context", "Name the servers you work with, and switch between them.", panel="Administration")

COLUMNS = (
    Column("", lambda one: "*" if one["current"] else ""),
    Column("NAME", lambda one: one["name"]),
    Column("URL", lambda one: one["url"]),
    Column("KEY FILE", lambda one: one["key_file"], extra=True),
)


def _complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        return [name for name in read_contexts().by_name if name.startswith(incomplete)]
    except UsageError:  # a completing shell has nowhere to show an error
        return []


_name = click.argument("name", shell_complete=_complete_name)


@command(context, "list", examples=("detent context list",))
@format_options(quiet="names only")
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
    empty = "There are no contexts: add one with `detent context add NAME --url URL`."
    output.print_page({"items": items, "next_cursor": None}, COLUMNS, empty, identity="name")


@command(
    context,
    "add",
    examples=("detent context add prod --url https://detent.example.org --key-file prod.key",),
)
@click.argument("name")
@option("--url", required=True, metavar="URL", help="Address of the server.")
@option("--key-file", metavar="FILE", help="File with the API key; it is read when the key is needed.")
@option("--use", is_flag=True, help="Make it the current context.")
@option("--replace", is_flag=True, help="Replace an existing context of this name.")
def add(name: str, url: str, key_file: str | None, use: bool, replace: bool) -> None:
    """Add a context: a name for a server."""
    contexts = read_contexts()
    if check_name(name) in contexts.by_name and not replace:
        raise Conflict(f"There is already a context {name!r}: give --replace to change it.")
    from detent.client.transport import ApiAddress

    ApiAddress(url, None)  # refuses what is not an address
    path = None if key_file is None else Path(key_file).expanduser().absolute()
    current = name if use or not contexts.by_name else contexts.current
    write_contexts(Contexts(current, {**contexts.by_name, name: Context(name, url, path)}))
    output.say(f"Added context {name}{', which is now the current one' if current == name else ''}.")
    if path is not None and not path.exists():
        output.say(f"warning: {path} does not exist yet: write the key into it.")


@command(context, "use", examples=("detent context use production", "detent context use --none"))
@click.argument("name", required=False, shell_complete=_complete_name)
@option("--none", is_flag=True, help="Use no context: the server comes from the settings, else the default.")
def use(name: str | None, none: bool) -> None:
    """Make a context the current one."""
    if (name is None) != none:
        raise UsageError("Give either the NAME of a context or --none.")
    contexts = read_contexts()
    chosen = contexts.chosen(name) if name else None
    write_contexts(Contexts(name, contexts.by_name))
    output.say(f"Commands now use {chosen.url}." if chosen else "Commands now use no context.")
    for variable in (CONTEXT, "DETENT_API_URL"):
        if os.environ.get(variable):
            output.say(f"warning: {variable} is set to {os.environ[variable]} and overrides the current context.")


@command(context, "remove", examples=("detent context remove production",))
@_name
def remove(name: str) -> None:
    """Remove a context; its key file is kept."""
    contexts = read_contexts()
    contexts.chosen(name)
    left = {other: one for other, one in contexts.by_name.items() if other != name}
    write_contexts(Contexts(None if contexts.current == name else contexts.current, left))
    output.say(f"Removed context {name}.")


@command(context, "show", examples=("detent context show",))
@server_options(hidden=True)
@format_options(quiet="the context's name only")
def show() -> int:
    """Show the server that commands call, and where it is set."""
    from detent.cli.invocation import client_settings

    settings = client_settings()
    document = {"url": settings.api_url, "from": settings.origins["api_url"], "file": str(contexts_path())}
    if invocation().format == "json":
        output.print_json(document)
    else:
        print(clean(f"{document['url']} ({document['from']})"))
    return 0
