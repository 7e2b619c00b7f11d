"""An exception becomes one line on stderr and an exit code."""

from __future__ import annotations

import difflib
import os
import traceback
from collections.abc import Mapping, Sequence

import click

from detent.cli.text import flat, message
from detent.errors import DetentError, UsageError

DEBUG = "DETENT_DEBUG"
# What other tools call the same.
SYNONYMS = {
    "--from": ("--since",),
    "--after": ("--since", "--from"),
    "--since": ("--from",),
    "--to": ("--until",),
    "--before": ("--until", "--to"),
    "--until": ("--to",),
    "--command": ("--shell",),
    "--http": ("--url",),
    "--data": ("--payload",),
    "--body": ("--payload",),
    "--interval": ("--every",),
    "--zone": ("--timezone", "--tz"),
    "--force": ("--yes",),
    "--host": ("--api-url",),
    "--server": ("--api-url",),
    "--delay": ("--in",),
}
VERBS = {
    "add": ("create",),
    "describe": ("get", "show"),
    "enqueue": ("run",),
    "kill": ("cancel",),
    "log": ("logs",),
    "ls": ("list",),
    "new": ("create",),
    "remove": ("delete", "discard"),
    "replay": ("retry", "redrive"),
    "retry": ("redrive",),
    "rm": ("delete", "discard"),
    "run": ("trigger",),
    "show": ("get",),
    "start": ("trigger", "run", "resume"),
    "status": ("get",),
    "stop": ("cancel", "pause"),
    "tail": ("logs",),
    "trigger": ("run",),
    "unpause": ("resume",),
    "update": ("edit",),
}


class TimedOut(DetentError):  # noqa: N818 - named after what happened, as in errors.py
    """The wait exceeded --timeout; the exit code is that of timeout(1)."""

    exit_code = 124


class DetailedError(UsageError):
    """Several errors: `lines` are printed before the message that sums them up."""

    def __init__(self, message: str, lines: Sequence[str]) -> None:
        super().__init__(message)
        self.lines = lines


def report(error: Exception) -> int:
    """Print the error and return its exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        message(error.format_message())
        return error.exit_code
    if isinstance(error, click.Abort):  # Ctrl-C, or the end of input, at a question
        message("")
        return 130
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    if isinstance(error, click.ClickException):
        say_error(_usage(error))
        return error.exit_code
    if isinstance(error, DetentError):
        for line in error.lines if isinstance(error, DetailedError) else ():
            message(flat(line))
        say_error(_sentence(error))
        return error.exit_code
    say_error(f"Internal error ({_shown(error)}): set {DEBUG}=1 for a traceback.")
    return 1


def say_error(sentence: str) -> None:
    message(f"error: {flat(sentence)}")


def _sentence(error: DetentError) -> str:
    pointer = error.pointer if isinstance(error, UsageError) else ""
    return f"{error.message} (at {pointer})" if pointer else error.message


def _usage(error: click.ClickException) -> str:
    match error:
        case click.NoSuchOption():
            text = _no_such_option(error)
        case click.NoSuchCommand():
            text = _no_such_command(error)
        case _:
            text = error.format_message()
    text = text if text.endswith((".", "?", "!")) else f"{text}."
    context = getattr(error, "ctx", None)
    if context is None:
        return text
    return f"{text} See '{context.command_path} --help'."


def _no_such_option(error: click.NoSuchOption) -> str:
    """Of the options that look alike, click names all; the nearest one is meant. The leading hyphens are common to
    all, so they are not compared: they would make any two short names alike."""
    options = {name.removeprefix("--"): name for name in _options(error.ctx)}
    given = error.option_name.lstrip("-")
    meant = [name for name in SYNONYMS.get(error.option_name, ()) if name in options.values()]
    near = [options[name] for name in difflib.get_close_matches(given, options, n=1)]
    known = next(iter([*meant, *near, *_with_word(given, options)]), None)
    return f"No such option {error.option_name!r}." + (f" Did you mean {known!r}?" if known else "")


def _no_such_command(error: click.NoSuchCommand) -> str:
    """A verb of another tool is answered with the one of this noun; otherwise click names what looks alike."""
    group = error.ctx.command if error.ctx is not None else None
    known = group.commands if isinstance(group, click.Group) else {}
    meant = [name for name in VERBS.get(error.command_name, ()) if name in known]
    return f"{error.message} Did you mean {meant[0]!r}?" if meant else error.format_message()


def _with_word(given: str, options: Mapping[str, str]) -> list[str]:
    """The option that has this word in its name, if it is the only one."""
    found = [option for name, option in options.items() if given in name.split("-")]
    return found if len(found) == 1 else []


def _options(context: click.Context | None) -> list[str]:
    if context is None:
        return []
    options = [one for one in context.command.get_params(context) if isinstance(one, click.Option) and not one.hidden]
    return [name for option in options for name in option.opts if name.startswith("--")]


def _shown(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
