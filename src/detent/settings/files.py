"""Files that settings come from: TOML, and one value each for secrets."""

from __future__ import annotations

import tomllib
from pathlib import Path

from detent.errors import UsageError
from detent.settings.toml import TooDeep, parse_toml


def secret_in(key: str, path: Path) -> str:
    try:
        secret = path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"{key} names {path}, which cannot be read ({_reason(error)}).") from error
    if not secret:
        raise UsageError(f"{key} names {path}, which is empty: write the value into it.")
    return secret


def settings_in(path: Path) -> dict[str, object]:
    try:
        return parse_toml(path.read_text("utf-8"))
    except TooDeep as error:
        raise UsageError(f"The settings file {path} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"The settings file {path} cannot be read ({_reason(error)}).") from error


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"
