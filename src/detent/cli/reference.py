"""The page docs/cli.md, made from the commands themselves.

python -m detent.cli.reference > docs/cli.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import click

from detent.cli.root import root

HEAD = """# The command line

<!-- Made by `make docs-cli` from the commands themselves: change their help, not this page. -->

Data goes to stdout and talk to stderr. On a terminal lists are tables; in a pipe they are lines with tabs, and every
column is whole. `--json` prints the API's JSON, `--quiet` ids only. `NO_COLOR` takes the colours away.

Which server is asked is said by `--api-url`, else `DETENT_API_URL`, else the context that `--context` or
`DETENT_CONTEXT` names, else the current one, else `detent.toml`; these options can stand before or after the command.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | failed, or not agreed to |
| 2 | wrong usage; of `detent diff --exit-code`: there are changes |
| 3 | not found |
| 4 | not authorised |
| 5 | the run that was waited for did not succeed |
| 6 | conflict: it exists already, or was changed meanwhile |
| 7 | unavailable: no server, no database, a port that is taken |
| 124 | the time given with `--timeout` is over |
"""


def page() -> str:
    return "\n".join([HEAD, *_group("detent", root)]).rstrip() + "\n"


def _group(path: str, group: click.Group) -> Iterator[str]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield f"## {path} {name}\n\n{_text(command.help)}\n"
            yield from _group(f"{path} {name}", command)
        else:
            yield from _command(f"{path} {name}", command)


def _command(path: str, command: click.Command) -> Iterator[str]:
    depth = "###" if path.count(" ") > 1 else "##"
    help_text, _, examples = (command.help or "").partition("\b\nFor example:\n")
    yield f"{depth} {path}\n"
    yield f"`{path}{''.join(_argument(one) for one in command.params if isinstance(one, click.Argument))} [OPTIONS]`\n"
    yield f"{_text(help_text)}\n"
    rows = list(_options(command))
    if rows:
        yield "| option | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n"
    if examples:
        yield "For example:\n\n" + "\n".join(f"- `{line.removeprefix('$ ')}`" for line in examples.splitlines()) + "\n"


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return f" {name}" if argument.required or name.startswith("[") else f" [{name}]"


def _options(command: click.Command) -> Iterator[str]:
    for one in command.params:
        if not isinstance(one, click.Option) or one.hidden:
            continue
        names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        value = "" if one.is_flag else f" `{_metavar(one)}`"
        yield f"| {names}{_cell(value)} | {_cell(_text(one.help))} |"


def _metavar(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.type.name.upper()


def _text(text: str | None) -> str:
    """Help as paragraphs; what click understands by backspaces is left out."""
    paragraphs = re.split(r"\n\s*\n", (text or "").replace("\b\n", "").strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
