"""The contexts of a user: named servers, stored in one file of the user's configuration folder.

    current = "production"

    [contexts.production]
    url = "https://detent.example.org"
    key_file = "/home/ada/.config/detent/production.key"
    ca_file = "/home/ada/.config/detent/production-ca.pem"

The keys themselves are not in it: a context names the file of its key, and the files for TLS.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from detent.errors import NotFound, UsageError
from detent.settings.settings import Context
from detent.settings.toml import parse_toml

FILE = "contexts.toml"
FILES = ("key_file", "ca_file", "client_cert", "client_key")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class Contexts(NamedTuple):
    current: str | None
    by_name: Mapping[str, Context]

    def chosen(self, name: str | None) -> Context | None:
        """The context of this name, or the current one when no name is given."""
        name = name or self.current
        if name is None:
            return None
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise NotFound(f"There is no context {name!r} (there are: {known}): add it with `detent context add`.")
        return self.by_name[name]


def contexts_path(environ: Mapping[str, str] = os.environ) -> Path:
    shared = Path(environ.get("XDG_CONFIG_HOME", ""))
    home = Path(environ.get("HOME", ""))
    if shared.is_absolute():
        return shared / "detent" / FILE
    if home.is_absolute():
        return home / ".config" / "detent" / FILE
    return Path(FILE)  # there is no home folder


def read_contexts() -> Contexts:
    path = contexts_path()
    try:
        document = parse_toml(path.read_text("utf-8"))
    except FileNotFoundError:
        return Contexts(None, {})
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"The contexts in {path} cannot be read ({reason}): fix the file, or remove it.") from error
    return _contexts(document, path)


def _contexts(document: dict[str, Any], path: Path) -> Contexts:
    entries, current = document.get("contexts", {}), document.get("current")
    if set(document) - {"contexts", "current"} or not isinstance(entries, dict) or not isinstance(current, str | None):
        raise UsageError(f"{path} may contain only `current` and `[contexts.NAME]`: fix it, or remove it.")
    return Contexts(current, {name: _context(name, entry, path) for name, entry in entries.items()})


def _context(name: str, entry: Any, path: Path) -> Context:
    if not isinstance(entry, dict) or not isinstance(entry.get("url"), str) or set(entry) - {"url", *FILES}:
        raise UsageError(f"The context {name} in {path} may have a url, {', '.join(FILES)}, all text: fix it there.")
    files = {key: path.parent / Path(str(entry[key])).expanduser() for key in FILES if entry.get(key)}
    return Context(name, entry["url"], **{"key_file": None, **files})


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f"The context name is {name!r}: give letters, digits, dots, hyphens and underscores.")
    return name


def write_contexts(contexts: Contexts) -> None:
    """Replace the file atomically; only its owner can read it."""
    path = contexts_path()
    lines = [f"current = {_quoted(contexts.current)}\n"] if contexts.current else []
    for name, context in sorted(contexts.by_name.items()):
        lines.append(f"\n[contexts.{_quoted(name)}]\nurl = {_quoted(context.url)}\n")
        files = {key: getattr(context, key) for key in FILES}
        lines += [f"{key} = {_quoted(str(file))}\n" for key, file in files.items() if file is not None]
    fresh = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh.write_text("".join(lines), "utf-8")
        fresh.chmod(0o600)
        fresh.rename(path)
    except OSError as error:
        raise UsageError(f"The contexts cannot be written to {path} ({error.strerror}).") from error


def _quoted(text: str | None) -> str:
    return json.dumps(text, ensure_ascii=False)  # a JSON string is a valid TOML string
