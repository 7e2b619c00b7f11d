"""The command and option classes of all detent commands.

Help is rendered by rich-click on a terminal and by click elsewhere: boxes and colours are of no use in a pipe, and
importing them costs a tenth of the time `detent --help` may take. Both list options and commands under the heading
that their `panel` names.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def on_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def can_draw() -> bool:
    """Whether a progress bar can be drawn; it goes to stderr."""
    return sys.stderr is not None and sys.stderr.isatty()


def can_ask() -> bool:
    """Whether the user can be asked a question."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


class Option(click.Option):
    def __init__(self, *arguments: Any, panel: str | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.panel = panel


def option(*names: str, panel: str | None = None, **settings: Any) -> Callable[[F], F]:
    return click.option(*names, cls=Option, panel=panel, **settings)


class PlainCommand(click.Command):
    def __init__(self, *arguments: Any, panel: str | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.panel = panel

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            (getattr(parameter, "panel", None) or "Options", record)
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None
        ]
        _write_sections(formatter, rows, last="Options")


class PlainGroup(PlainCommand, click.Group):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = formatter.width - 6 - max((len(name) for name in self.commands), default=0)
        rows = [
            (getattr(command, "panel", None) or "Commands", (name, command.get_short_help_str(width)))
            for name, command in self.commands.items()
            if not command.hidden
        ]
        _write_sections(formatter, rows, last="Commands")


def _write_sections(formatter: click.HelpFormatter, rows: Iterable[tuple[str, tuple[str, str]]], last: str) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    for panel, record in rows:
        sections.setdefault(panel, []).append(record)
    for panel in sorted(sections, key=lambda panel: panel == last):
        with formatter.section(panel):
            formatter.write_dl(sections[panel])


if TYPE_CHECKING or not on_terminal():
    Command = PlainCommand
    Group = PlainGroup
else:
    from rich_click import RichCommand as Command
    from rich_click import RichGroup as Group


CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
if on_terminal():
    CONTEXT["rich_help_config"] = {
        "theme": "default-slim",
        "style_helptext": "",
        "text_paragraph_linebreaks": "\n\n",
        "padding_helptext_first_line": (0, 0, 1, 0),
    }


def group(name: str, help_text: str, panel: str | None = None) -> Group:
    """A noun; its verbs are listed in the order in which they are added."""
    short = help_text.partition("\n\n")[0].rstrip(".")
    return _Ordered(name, help=help_text, short_help=short, panel=panel, no_args_is_help=True, context_settings=CONTEXT)


class _Ordered(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def command(
    parent: click.Group | None, name: str, *, examples: Sequence[str] = (), panel: str | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make the function a command, of `parent` if any; its docstring and the examples are its help."""

    def add(function: Callable[..., Any]) -> click.Command:
        text = inspect.cleandoc(function.__doc__ or "")
        lines = "\n".join(f"$ {example}" for example in examples)
        made = click.command(
            name,
            cls=Command,
            panel=panel,
            context_settings=CONTEXT,
            help=f"{text}\n\n\b\nFor example:\n{lines}" if examples else text,
            short_help=text.split("\n\n")[0].replace("\n", " ").rstrip("."),
        )(function)
        if parent is not None:
            parent.add_command(made)
        return made

    return add
