"""`detent job edit JOB` without options: the job as YAML in the user's editor.

What was saved is checked here and by the server. While it is wrong, the editor opens again with the reason on top. The
change names the revision that was shown, so a job that another client changed meanwhile is left alone.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.cli import base, output
from detent.cli.edits import report_changes
from detent.cli.output import Item
from detent.errors import Conflict, UsageError

if TYPE_CHECKING:
    from detent.client import JsonClient

HELP = (
    "# Change the job, save, and close the editor. Without a change, or with an empty file, nothing is done.\n"
    "# Fields that are not listed have their defaults; a field that you remove gets its default.\n"
)
ERROR = "# error: "
HEAD_LINES = 3  # above the text that is wrong: the error and the help
FALLBACK = "vi"
MAX_OPENED = 20  # an editor that is a program may never get it right


def can_edit() -> bool:
    """Whether an editor is chosen, or one can be opened on a terminal."""
    return bool(_chosen()) or base.can_ask()


def edit_job(client: JsonClient, job: Item, *, dry_run: bool) -> Item | None:
    """The changed job, or None if nothing was changed."""
    from detent.declarative.export import document_of
    from detent.declarative.yaml_text import write

    before = document_of(job)
    shown, fault, opened = write(before), "", 0
    while True:
        saved = _without_comments(_edited(f"{ERROR}{fault}\n{HELP}{shown}" if fault else f"{HELP}{shown}", job["name"]))
        if not saved.strip() or saved.strip() == shown.strip():
            if fault:
                raise UsageError(f"Nothing was changed. {fault}")
            output.say(f"No change in {job['name']}.")
            return None
        shown = saved
        try:
            fields = _changed_fields(before, _read(saved))
            if dry_run or not fields:
                _check(saved)
                report_changes(job, {**job, **fields}, "Would change")
                return None
            return client.edit_job(job["id"], fields, revision=job["revision"])
        except Conflict as error:
            raise Conflict(f"{error.message} Your text is kept in {_kept(saved, job['name'])}.") from error
        except UsageError as error:
            opened += 1
            if opened == MAX_OPENED or not base.can_ask():
                raise
            fault = f"{error.message} (at {error.pointer})" if error.pointer else error.message
            output.say(f"error: {fault}")


def _changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What differs: whole fields, None for those that were removed."""
    removed = {field: None for field in before if field not in after}
    return removed | {field: value for field, value in after.items() if before.get(field) != value}


def _check(text: str) -> None:
    """What the server would refuse, where it is not asked."""
    from detent.cli.times import now
    from detent.declarative.check import check

    check(_read(text), now())


def _read(text: str) -> dict[str, Any]:
    from detent.declarative.located import Unreadable
    from detent.declarative.yaml_text import read_yaml

    try:
        documents = read_yaml(text)
    except Unreadable as error:
        raise UsageError(f"Line {error.line + HEAD_LINES}: {error.message}") from None
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        raise UsageError("The text is not one job: keep its fields as lines such as `priority: 8`.")
    if documents[0].faults:
        line, fault = documents[0].faults[0]
        raise UsageError(f"Line {line + HEAD_LINES}: {fault}")
    return dict(documents[0].value)


def _edited(text: str, name: str) -> str:
    """The text as the user left it."""
    with tempfile.TemporaryDirectory(prefix="detent-") as folder:
        path = Path(folder) / f"{_file_name(name)}.yaml"
        path.write_text(text, "utf-8")
        command = [*shlex.split(_chosen() or FALLBACK), str(path)]
        try:
            code = subprocess.run(command, check=False).returncode  # noqa: S603 - the user's own editor
        except OSError as error:
            raise UsageError(
                f"The editor {command[0]!r} cannot be started ({error.strerror}): set EDITOR to another one."
            ) from None
        if code != 0:
            raise UsageError(f"The editor ended with exit code {code}: nothing was changed.")
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"The edited text cannot be read ({error}): nothing was changed.") from None


def _chosen() -> str:
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""


def _without_comments(text: str) -> str:
    """Without the lines that were put on top; comments of the user's own go with the text."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)[:80]


def _kept(text: str, name: str) -> str:
    handle, path = tempfile.mkstemp(prefix=f"detent-{_file_name(name)}-", suffix=".yaml")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return path
