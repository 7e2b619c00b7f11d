"""`detent version` and `detent completion`"""

from __future__ import annotations

import platform
from typing import Any

import click

from detent.cli import output
from detent.cli.base import command, option
from detent.cli.invocation import connect, format_options, invocation, server_options
from detent.cli.text import clean
from detent.version import __version__

PANEL = "Administration"


@command(
    None,
    "completion",
    panel=PANEL,
    examples=('eval "$(detent completion bash)"', "detent completion fish | source"),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell script that completes commands and job names."""
    from click.shell_completion import get_completion_class

    from detent.cli import COMPLETE

    kind = get_completion_class(shell)
    assert kind is not None  # click knows every shell of the choice above
    print(kind(click.get_current_context().find_root().command, {}, "detent", COMPLETE).source())


@command(None, "version", panel=PANEL, examples=("detent version --server",))
@option("--server", is_flag=True, help="Also print the server's version.")
@server_options(hidden=True)
@format_options()
def version(server: bool) -> None:
    """Print the version."""
    mine: dict[str, Any] = {"version": __version__, "python": platform.python_version()}
    if server:
        with connect() as client:
            mine["server"] = client.version()
    if invocation().format == "json":
        output.print_json(mine)
        return
    print(f"detent {mine['version']} (Python {mine['python']})")
    if server:
        print(clean(f"server {mine['server']['version']}"))
