"""What all commands of one invocation share: where the server is, and in which shape to answer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import click

from detent.cli.base import F, option
from detent.cli.failures import DEBUG
from detent.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from detent.client.documents import Client
    from detent.settings.settings import Context, Settings

CONTEXT = "DETENT_CONTEXT"

Shape = Literal["people", "json", "quiet"]


@dataclasses.dataclass
class Session:
    """The options that mean the same everywhere, whether they stand before or after the command's name."""

    api_url: str | None = None
    config: str | None = None
    context: str | None = None
    shape: Shape = "people"


def session() -> Session:
    context = click.get_current_context()
    return context.ensure_object(Session)


def load_settings(flags: Mapping[str, object], context: Context | None = None) -> Settings:
    from detent.settings.settings import Settings

    environ = {name: value for name, value in os.environ.items() if name not in (DEBUG, CONTEXT)}
    try:
        return Settings.load({"config": session().config, **flags}, environ, context=context)
    except UsageError as error:
        # The sentence names the flag, variable or key; a pointer is for documents.
        raise UsageError(error.message) from error


def client_settings(**flags: object) -> Settings:
    """The settings of a command that asks a server: those of the chosen context are among them."""
    return load_settings({"api_url": session().api_url, **flags}, chosen_context())


def chosen_context() -> Context | None:
    """The context that --context or DETENT_CONTEXT names, else the current one."""
    from detent.cli.context_file import read_contexts

    return read_contexts().chosen(session().context or os.environ.get(CONTEXT) or None)


def connect(timeout: float | None = None) -> Client:
    from detent.client.documents import ANSWER_SECONDS, Client

    settings = client_settings()
    return Client(settings.api_url, settings.api_key, timeout=timeout or ANSWER_SECONDS)


def _remember(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            setattr(context.ensure_object(Session), name, value)

    return remember


def _shape(shape: Shape) -> Callable[[click.Context, click.Parameter, bool], None]:
    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if not value:
            return
        current = context.ensure_object(Session)
        if current.shape not in ("people", shape):
            raise UsageError("--json and --quiet are both given: give one of the two.")
        current.shape = shape

    return remember


def server_options(hidden: bool) -> Callable[[F], F]:
    """--api-url, --context and --config: shown by `detent --help`, understood by every command that asks the server."""

    def add(function: F) -> F:
        named = option(
            "--context",
            metavar="NAME",
            expose_value=False,
            hidden=hidden,
            callback=_remember("context"),
            help="The server of this name, see `detent context`. [DETENT_CONTEXT, else the current one]",
        )
        address = option(
            "--api-url",
            metavar="URL",
            expose_value=False,
            hidden=hidden,
            callback=_remember("api_url"),
            help="The server to ask. [DETENT_API_URL, else http://127.0.0.1:8787]",
        )
        return address(named(config_option(hidden)(function)))

    return add


def config_option(hidden: bool) -> Callable[[F], F]:
    return option(
        "--config",
        metavar="FILE",
        expose_value=False,
        hidden=hidden,
        callback=_remember("config"),
        help="The settings file. [detent.toml, if there is one]",
    )


def shapes(*, quiet: str | None = None) -> Callable[[F], F]:
    """--json, and --quiet where `quiet` says what is then printed."""

    def add(function: F) -> F:
        if quiet is not None:
            function = option(
                "--quiet",
                "-q",
                is_flag=True,
                expose_value=False,
                callback=_shape("quiet"),
                help=f"Print {quiet}.",
            )(function)
        return option(
            "--json", is_flag=True, expose_value=False, callback=_shape("json"), help="Print the API's JSON."
        )(function)

    return add


def asks_server(*, quiet: str | None = None) -> Callable[[F], F]:
    """What every command has that talks to the server and prints what it said."""
    return lambda function: server_options(hidden=True)(shapes(quiet=quiet)(function))


def read_number(flag: str, text: str, lowest: int, highest: int | None = None) -> int:
    try:
        number = int(text)
    except ValueError:
        number = lowest - 1
    if number < lowest or (highest is not None and number > highest):
        bounds = f"of at least {lowest}" if highest is None else f"between {lowest} and {highest}"
        raise UsageError(f"{flag} is {text!r}: give a whole number {bounds}.")
    return number


def complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _complete(
        context, lambda client: client.list_jobs(limit=200, prefix=incomplete or None), "name", "status", incomplete
    )


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _complete(context, lambda client: client.list_runs(limit=50), "id", "job", incomplete)


def complete_node(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _complete(context, lambda client: {"items": client.cluster()["nodes"]}, "id", "state", incomplete)


def _complete(
    context: click.Context, fetch: Callable[[Client], Mapping[str, Any]], value: str, words: str, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        with context.scope(cleanup=False), connect(timeout=1) as client:
            items = fetch(client)["items"]
    except Exception:  # a shell that is completing has nowhere to show an error
        return []
    return [
        CompletionItem(item[value], help=item.get(words)) for item in items if str(item[value]).startswith(incomplete)
    ]
