"""The wheel and the source archive: what is in them, and that everyone who builds them gets the same bytes."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

from detent.version import __version__
from tools import sbom
from tools.release_files import build

EPOCH = 1_780_000_000
NOT_IN_THE_ARCHIVE = (".ci/", ".github/", ".pre-commit-config.yaml")
DIST_INFO = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
BUILD = "import sys; from pathlib import Path; from tools.release_files import build; "
BUILD += "build(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))"


class TrackedFile(NamedTuple):
    content: bytes
    executable: bool


Tracked = dict[str, TrackedFile]


class Distributions(NamedTuple):
    source: Path
    wheel: dict[str, bytes]
    archive: dict[str, bytes]


@pytest.fixture(scope="module")
def tracked() -> Tracked:
    """The files of the project, read once: an edit in the meantime must not make two builds differ."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=sbom.ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git checkout: which files belong to the project is not known")
    files = [name for name in listed.stdout.split("\0") if name and (sbom.ROOT / name).exists()]
    return {name: read(sbom.ROOT / name) for name in files}


def read(file: Path) -> TrackedFile:
    return TrackedFile(file.read_bytes(), bool(file.stat().st_mode & 0o100))


def copy_checkout(tracked: Tracked, folder: Path, umask: int = 0o022, mtime: int = EPOCH) -> Path:
    """The tracked files, with the modes that a checkout under this umask gives them."""
    for name, file in tracked.items():
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.content)
        copy.chmod((0o777 if file.executable else 0o666) & ~umask)
        os.utime(copy, (mtime, mtime))
    return folder


@pytest.fixture(scope="module")
def built(tracked: Tracked, tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    folder = tmp_path_factory.mktemp("distributions")
    source = copy_checkout(tracked, folder / "source")
    build(source, folder / "dist", EPOCH)
    (wheel,), (archive,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as zipped, tarfile.open(archive) as tarred:
        return Distributions(
            source,
            {name: zipped.read(name) for name in zipped.namelist()},
            {
                str(PurePosixPath(*PurePosixPath(each.name).parts[1:])): tarred.extractfile(each).read()
                for each in tarred.getmembers()
            },
        )


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: Distributions, tracked: Tracked) -> None:
    package = {name.removeprefix("src/") for name in tracked if name.startswith("src/detent/")}
    assert built.wheel.keys() == package | {f"detent-{__version__}.dist-info/{name}" for name in DIST_INFO}


def test_the_wheel_has_the_statements_the_pages_the_assets_and_the_mark_of_types(built: Distributions) -> None:
    endings = {PurePosixPath(name).suffix for name in built.wheel}
    assert {".sql", ".html", ".css", ".js", ".svg"} <= endings
    assert "detent/py.typed" in built.wheel
    assert any(name.startswith("detent/store/migrations/0001") for name in built.wheel)
    assert {"detent/dashboard/static/vendor/LICENSE-htmx", "detent/dashboard/VENDOR.sha256"} <= built.wheel.keys()


def test_the_source_archive_has_every_tracked_file_but_those_of_hosted_ci(
    built: Distributions, tracked: Tracked
) -> None:
    expected = {name for name in tracked if not name.startswith(NOT_IN_THE_ARCHIVE)}
    assert built.archive.keys() == expected | {"PKG-INFO"}


def test_no_file_of_a_distribution_names_a_folder_of_the_machine_that_built_it(built: Distributions) -> None:
    folders = [str(folder).encode() for folder in (built.source, sbom.ROOT, Path(sys.prefix))]
    for files in (built.wheel, built.archive):
        assert [name for name, content in files.items() if any(folder in content for folder in folders)] == []


@pytest.mark.long
def test_builds_in_other_folders_under_other_umasks_and_times_give_the_same_bytes(
    tracked: Tracked, tmp_path: Path
) -> None:
    one = build_apart(tracked, tmp_path / "one", 0o022, EPOCH, {"TZ": "UTC", "PYTHONHASHSEED": "1"})
    # The files are created in another order, too, because some file systems list them in that order.
    reverse = dict(reversed(tracked.items()))
    two = build_apart(reverse, tmp_path / "a longer name" / "two", 0o077, 1_000_000_000, {"TZ": "Asia/Tokyo"})
    assert len(one) == 2
    assert one == two


@pytest.mark.long
def test_the_files_of_a_distribution_carry_the_time_of_the_commit(tracked: Tracked, tmp_path: Path) -> None:
    first = build_apart(tracked, tmp_path / "first", 0o022, EPOCH, {})
    later = build_apart(tracked, tmp_path / "later", 0o022, EPOCH, {}, epoch=EPOCH + 86_400)
    assert first.keys() == later.keys()
    assert all(first[name] != later[name] for name in first)


def build_apart(
    tracked: Tracked, folder: Path, umask: int, mtime: int, environ: dict[str, str], epoch: int = EPOCH
) -> dict[str, str]:
    """The SHA-256 of each distribution, built by a process with this umask and environment."""
    source = copy_checkout(tracked, folder / "source", umask, mtime)
    command = [sys.executable, "-c", BUILD, str(source), str(folder / "dist"), str(epoch)]
    subprocess.run(command, cwd=sbom.ROOT, env={**os.environ, **environ}, umask=umask, check=True)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (folder / "dist").iterdir()}


def test_hosted_ci_names_actions_by_commit(tracked: Tracked) -> None:
    workflows = [sbom.ROOT / name for name in tracked if name.startswith(".github/workflows/")]
    used = [line for file in workflows for line in re.findall(r"uses: (.+)", file.read_text())]
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} +# v[\d.]+", line)] == []
