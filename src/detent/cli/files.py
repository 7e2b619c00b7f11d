"""The job files that arguments and -f name, and the report of errors in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detent.cli import times
from detent.cli.base import F, option
from detent.cli.failures import DetailedError
from detent.domain.counts import plural
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.declarative.jobs_file import Declared
    from detent.declarative.located import FileFault

STDIN = "-"
PATHS = "detent.paths"


def file_options() -> Callable[[F], F]:
    """Files as arguments and as -f, together `files`; and -R."""

    def add(function: F) -> F:
        recursive = option("--recursive", "-R", is_flag=True, help="Also read subfolders.")
        files = option(
            "--file",
            "-f",
            "files",
            metavar="PATH",
            multiple=True,
            callback=_all_files,
            help="Like PATH: a YAML, JSON or TOML file, a folder of them, or - for stdin; may be repeated.",
        )
        paths = click.argument(
            "paths", metavar="[PATH]...", nargs=-1, is_eager=True, expose_value=False, callback=_keep_paths
        )
        return paths(files(recursive(function)))

    return add


def _keep_paths(context: click.Context, parameter: click.Parameter, paths: tuple[str, ...]) -> None:
    context.meta[PATHS] = paths


def _all_files(context: click.Context, parameter: click.Parameter, files: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments are eager, so they are known here."""
    every = (*files, *context.meta[PATHS])
    if not every and not context.resilient_parsing:
        raise UsageError(f"No file is given: name files or folders, as in `{context.command_path} jobs.yaml`.")
    return every


def read_declared(paths: Sequence[str], recursive: bool) -> list[Declared]:
    """The jobs of these files. Raises one error that lists every mistake."""
    from detent.declarative.jobs_file import read_files

    found = read_files(read_texts(paths, recursive), times.now())
    if found.faults:
        raise JobFileError(found.faults)
    return found.jobs


class JobFileError(DetailedError):
    """The files have errors, each with its line."""

    def __init__(self, faults: Sequence[FileFault]) -> None:
        count, files = len(faults), len({fault.source for fault in faults})
        where = f" in {files} files" if files > 1 else ""
        super().__init__(f"{plural(count, 'error')}{where}: nothing was changed.", [*map(str, faults)])
        self.faults = faults


def read_texts(paths: Iterable[str], recursive: bool) -> list[tuple[str, str]]:
    return [(name, read_text(name)) for path in paths for name in _names(path, recursive)]


def _names(path: str, recursive: bool) -> list[str]:
    from detent.declarative.jobs_file import SUFFIXES

    if path == STDIN or not Path(path).is_dir():
        return [path]
    inside = Path(path).rglob("*") if recursive else Path(path).iterdir()
    found = sorted(str(one) for one in inside if one.suffix in SUFFIXES and _shown(one, path) and one.is_file())
    if not found:
        deeper = "" if recursive else ", or give -R to read subfolders"
        raise UsageError(f"The folder {path} has no file that ends in {', '.join(SUFFIXES)}: name the files{deeper}.")
    return found


def _shown(one: Path, top: str) -> bool:
    return not any(part.startswith(".") for part in one.relative_to(top).parts)


def read_text(path: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if path == STDIN else Path(path).expanduser().read_bytes()
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path} cannot be read ({reason}).") from None
