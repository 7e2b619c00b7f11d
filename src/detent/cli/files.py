"""The job files that -f names, and the report of errors in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from detent.cli import times
from detent.cli.base import F, option
from detent.cli.failures import DetailedError
from detent.domain.counts import plural
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.declarative.jobs_file import Declared
    from detent.declarative.located import FileFault

STDIN = "-"


def file_options(*, required: bool = True) -> Callable[[F], F]:
    """-f and -R."""

    def add(function: F) -> F:
        recursive = option("--recursive", "-R", is_flag=True, help="Also read subfolders.")
        files = option(
            "--file",
            "-f",
            "files",
            metavar="PATH",
            multiple=True,
            required=required,
            help="A YAML, JSON or TOML file, a folder of them, or - for stdin; may be repeated.",
        )
        return files(recursive(function))

    return add


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
