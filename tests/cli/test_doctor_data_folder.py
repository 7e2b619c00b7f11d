"""`detent doctor` without settings: which data folder it examines."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from detent.cli.doctor.data_folder import with_data_folder
from detent.settings.settings import Settings

LISTEN = (
    "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); "
    "print(s.getsockname()[1], flush=True); sys.stdin.read()"
)


def has_database(folder: Path) -> Path:
    (folder / "postgres").mkdir(parents=True)
    (folder / "postgres" / "PG_VERSION").write_text("18\n")
    return folder


@contextmanager
def listening(folder: Path, *arguments: str) -> Iterator[int]:
    """A process that listens, started there with these arguments; yields its port."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN, *arguments], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def settings(home: Path, port: int = 1, **flags: object) -> Settings:
    address = f"http://127.0.0.1:{port}"
    loaded = Settings.load({"api_url": address, **flags}, {"HOME": str(home), "XDG_DATA_HOME": str(home)})
    if loaded.origins["data_dir"] != "default":
        return loaded
    return dataclasses.replace(loaded, data_dir=home / "default")  # that of root may have a database of this machine


def test_the_folder_of_the_server_that_listens_is_examined(tmp_path: Path) -> None:
    elsewhere = has_database(tmp_path / "elsewhere" / ".detent")
    with listening(tmp_path / "elsewhere", "--data-dir", ".detent") as port:
        assert with_data_folder(settings(tmp_path, port)).data_dir == elsewhere


def test_without_a_server_the_folder_of_the_readme_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = settings(tmp_path)
    assert with_data_folder(before) == before
    assert with_data_folder(before).data_dir != has_database(tmp_path / ".detent")
    assert with_data_folder(before).data_dir == tmp_path / ".detent"


def test_a_chosen_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    has_database(tmp_path / ".detent")
    chosen = settings(tmp_path, data_dir=str(tmp_path / "chosen"))
    assert with_data_folder(chosen).data_dir == tmp_path / "chosen"
    other = settings(tmp_path, database_url="postgresql://host/detent")
    assert with_data_folder(other) == other
