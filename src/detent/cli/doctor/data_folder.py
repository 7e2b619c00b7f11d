"""Which data folder to examine where none is chosen: that of the server that listens here, else `.detent` of this
folder, where the commands of the README keep it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from detent.cli.doctor.machine import port_holder

if TYPE_CHECKING:
    from detent.settings.settings import Settings

OF_README = Path(".detent")
LOCAL = ("127.0.0.1", "localhost", "::1")


def with_data_folder(settings: Settings) -> Settings:
    if settings.database_url is not None or settings.origins["data_dir"] != "default":
        return settings
    for folder in _candidates(settings):
        if _has_database(folder):
            return dataclasses.replace(settings, data_dir=folder.absolute())
    return settings


def _candidates(settings: Settings) -> Iterator[Path]:
    address = urlsplit(settings.api_url)
    if address.hostname in LOCAL and (pid := port_holder(address.port or 80)) is not None:
        yield from _data_folder_of(pid)
    yield settings.data_dir
    yield OF_README


def _data_folder_of(pid: int) -> Iterator[Path]:
    """The folder that this process was started with; nothing if it is of another user, or not on Linux."""
    process = Path("/proc") / str(pid)
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        variables = (process / "environ").read_bytes().split(b"\0")
        folder = (process / "cwd").readlink()
    except OSError:
        return
    for word, following in zip(words, [*words[1:], b""], strict=True):
        if word == b"--data-dir":
            yield folder / os.fsdecode(following)
        elif word.startswith(b"--data-dir="):
            yield folder / os.fsdecode(word.partition(b"=")[2])
    for variable in variables:
        if variable.startswith(b"DETENT_DATA_DIR="):
            yield folder / os.fsdecode(variable.partition(b"=")[2])


def _has_database(folder: Path) -> bool:
    from detent.store.embedded_state import embedded_state

    try:
        return embedded_state(folder).version is not None
    except OSError:
        return False
