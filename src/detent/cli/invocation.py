"""The options that all commands share: which server to call, and in which format to print."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import click

from detent.cli.base import F, option
from detent.cli.failures import DEBUG
from detent.cli.text import message
from detent.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from detent.client import JsonClient
    from detent.client.operation import JsonPages
    from detent.client.tls import ClientTls
    from detent.settings.settings import Context, Settings

CONTEXT = "DETENT_CONTEXT"

OutputFormat = Literal["text", "json", "quiet"]


@dataclasses.dataclass
class Invocation:
    """The shared options of one invocation; they may appear before or after the command's name."""

    api_url: str | None = None
    config: str | None = None
    context: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    format: OutputFormat = "text"
    warned: set[str] = dataclasses.field(default_factory=set)


def invocation() -> Invocation:
    context = click.get_current_context()
    return context.ensure_object(Invocation)


def load_settings(flags: Mapping[str, object], context: Context | None = None) -> Settings:
    from detent.settings.settings import Settings

    _warn_of_passwords(flags)
    environ = {name: value for name, value in os.environ.items() if name not in (DEBUG, CONTEXT)}
    try:
        return Settings.load({"config": invocation().config, **flags}, environ, context=context)
    except UsageError as error:
        # The message names the flag, variable or key; pointers are for documents.
        raise UsageError(error.message) from error


def _warn_of_passwords(flags: Mapping[str, object]) -> None:
    from detent.cli.config import without_password

    for name in ("database_url", "coordinator"):
        given, current = flags.get(name), invocation()
        if isinstance(given, str) and name not in current.warned and without_password(given) != given:
            current.warned.add(name)
            variable = f"DETENT_{name.upper()}"
            passfile = ", or use ~/.pgpass" if name == "database_url" else ""
            message(
                f"warning: The password in --{name.replace('_', '-')} is visible to every user of this machine, for "
                f"example in ps: set {variable}, or {variable}_FILE to a file with the address{passfile}."
            )


def client_settings(**flags: object) -> Settings:
    """The settings of a command that calls a server, including those of the chosen context."""
    given = invocation()
    named = {name: getattr(given, name) for name in ("api_url", "ca_file", "client_cert", "client_key")}
    return load_settings({**named, **flags}, chosen_context())


def chosen_context() -> Context | None:
    """The context named by --context or DETENT_CONTEXT, else the current one."""
    from detent.cli.context_file import read_contexts

    return read_contexts().chosen(invocation().context or os.environ.get(CONTEXT) or None)


def connect(timeout: float | None = None) -> JsonClient:
    from detent.client import JsonClient
    from detent.client.transport import ANSWER_SECONDS

    settings = client_settings()
    check_key_address(settings)
    return JsonClient(settings.api_url, settings.api_key, timeout=timeout or ANSWER_SECONDS, tls=client_tls(settings))


def client_tls(settings: Settings) -> ClientTls:
    from detent.client.tls import ClientTls

    return ClientTls(settings.ca_file, settings.client_cert, settings.client_key)


def check_key_address(settings: Settings) -> None:
    """A file that --config names was chosen by the user; detent.toml was only found."""
    if invocation().config is None:
        settings.check_key_address()


def _remember(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            setattr(context.ensure_object(Invocation), name, value)

    return remember


def _set_format(chosen: OutputFormat) -> Callable[[click.Context, click.Parameter, bool], None]:
    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if not value:
            return
        current = context.ensure_object(Invocation)
        if current.format not in ("text", chosen):
            raise UsageError("--json and --quiet are both given: give one of the two.")
        current.format = chosen

    return remember


def server_options(hidden: bool) -> Callable[[F], F]:
    """--api-url, --context, --config and the files for TLS: listed in `detent --help`, accepted by every command that
    calls the server."""

    def add(function: F) -> F:
        for name, text in reversed(_TLS_OPTIONS):
            function = option(
                f"--{name.replace('_', '-')}",
                metavar="FILE",
                expose_value=False,
                hidden=hidden,
                callback=_remember(name),
                help=text,
            )(function)
        named = option(
            "--context",
            metavar="NAME",
            expose_value=False,
            hidden=hidden,
            callback=_remember("context"),
            help="Use the server of this context, see `detent context`. [DETENT_CONTEXT, else the current one]",
        )
        address = option(
            "--api-url",
            metavar="URL",
            expose_value=False,
            hidden=hidden,
            callback=_remember("api_url"),
            help="Address of the server. [DETENT_API_URL, else http://127.0.0.1:8787]",
        )
        return address(named(config_option(hidden)(function)))

    return add


_TLS_OPTIONS = (
    ("ca_file", "Trust only servers with a certificate of these authorities. [DETENT_CA_FILE, else the system's]"),
    ("client_cert", "Certificate for servers that ask for one. [DETENT_CLIENT_CERT]"),
    ("client_key", "Private key of --client-cert. [DETENT_CLIENT_KEY, else in the same file]"),
)


def config_option(hidden: bool) -> Callable[[F], F]:
    return option(
        "--config",
        metavar="FILE",
        expose_value=False,
        hidden=hidden,
        callback=_remember("config"),
        help="Settings file. [detent.toml, if it exists]",
    )


def format_options(*, quiet: str | None = None, json: str = "Print JSON.") -> Callable[[F], F]:
    """--json, with this help; and --quiet, where `quiet` names what it prints."""

    def add(function: F) -> F:
        if quiet is not None:
            function = option(
                "--quiet",
                "-q",
                is_flag=True,
                is_eager=True,  # the callbacks of other options may print
                expose_value=False,
                callback=_set_format("quiet"),
                help=f"Print {quiet}.",
            )(function)
        return option(
            "--json", is_flag=True, is_eager=True, expose_value=False, callback=_set_format("json"), help=json
        )(function)

    return add


def api_options(*, quiet: str | None = None, json: str = "Print JSON.") -> Callable[[F], F]:
    """The options of a command that calls the server and prints its answer."""
    return lambda function: server_options(hidden=True)(format_options(quiet=quiet, json=json)(function))


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
        context, lambda client: _first(client.list_jobs(prefix=incomplete or None), 200), "name", "status", incomplete
    )


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _complete(context, lambda client: _first(client.list_runs(), 50), "id", "job", incomplete)


def complete_node(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _complete(context, lambda client: client.get_cluster()["nodes"], "id", "state", incomplete)


def _first(listing: JsonPages, limit: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = listing.page(limit)["items"]
    return items


def _complete(
    context: click.Context,
    fetch: Callable[[JsonClient], list[dict[str, Any]]],
    value: str,
    words: str,
    incomplete: str,
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        with context.scope(cleanup=False), connect(timeout=1) as client:
            items = fetch(client)
    except Exception:  # a completing shell has nowhere to show an error
        return []
    return [
        CompletionItem(item[value], help=item.get(words)) for item in items if str(item[value]).startswith(incomplete)
    ]
