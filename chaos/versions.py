# ruff: noqa: S603, S607, T201 - git, uv and venv get only our own arguments; printing is the purpose of a script
"""Two versions of the product side by side: an earlier commit, and the working tree with at least one new migration.

The earlier commit is named in the file `previous_version`. It is exported from the history of this clone, and gets its
own environment. If the working tree has no new migration, a copy of it gets one, because the test must include a
migration.

Run as a script, this creates the environment of the previous version and prints the path of its interpreter.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
BUILD_DIR = ROOT / "build" / "versions"
PREVIOUS_FILE = Path(__file__).parent / "previous_version"
MIGRATIONS = Path("src/detent/store/migrations")

EXTRA_MIGRATION = """-- detent: compatible with {last:04}
-- While old nodes run, a migration may only add things.
ALTER TABLE nodes ADD COLUMN rolled_out boolean NOT NULL DEFAULT true;
CREATE INDEX elections_by_node ON elections (node);
"""


class CannotUpgrade(Exception):  # noqa: N818 - named after what happened
    """The message is one sentence: why the upgrade cannot be tested."""


class Version(NamedTuple):
    name: str
    python: Path
    migrations: int


def previous() -> Version:
    commit = _named_commit()
    folder = BUILD_DIR / commit[:12]
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tarfile.open(fileobj=BytesIO(_git("archive", commit))) as archive:
            archive.extractall(folder, filter="data")
        _environment(folder)
        (folder / "ready").touch()
    _check_same_history(folder)
    return Version(f"N-1 ({commit[:7]})", folder / "venv" / "bin" / "python", len(_migrations(folder)))


def present(before: Version, folder: Path) -> Version:
    """The working tree, as a copy if it needs a test migration."""
    count = len(_migrations(ROOT))
    if count > before.migrations:
        return Version("N", Path(sys.executable), count)
    copy = folder / "present"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / MIGRATIONS / f"{count + 1:04}_rolled_out.sql").write_text(EXTRA_MIGRATION.format(last=count))
    _borrow(copy)
    return Version("N (plus a test migration)", copy / "venv" / "bin" / "python", count + 1)


def _named_commit() -> str:
    lines = [line for line in PREVIOUS_FILE.read_text().splitlines() if line and not line.startswith("#")]
    commit = lines[0].strip()
    if subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True).returncode == 0:
        return commit
    if _git("rev-parse", "--is-shallow-repository").strip() == b"true":
        raise CannotUpgrade(f"This clone is shallow and lacks the commit {commit}: run `git fetch --unshallow` first.")
    raise CannotUpgrade(f"This clone has no commit {commit}: name another one in {PREVIOUS_FILE.relative_to(ROOT)}.")


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise CannotUpgrade(f"git {arguments[0]} failed: {done.stderr.decode().strip()}")
    return done.stdout


def _environment(folder: Path) -> None:
    """Install the packages in its lock file; if that equals ours, reuse the installed ones."""
    lock = Path("requirements/dev.lock")
    if (folder / lock).read_bytes() == (ROOT / lock).read_bytes():
        _borrow(folder)
        return
    python = folder / "venv" / "bin" / "python"
    uv: list[str | Path] = [sys.executable, "-m", "uv"]
    for command in (
        [*uv, "venv", "--quiet", folder / "venv"],
        [*uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", folder / lock],
        [*uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "-e", folder],
    ):
        subprocess.run(command, check=True)


def _borrow(folder: Path) -> None:
    """A venv that uses our installed packages, and detent from `folder`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    lent = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "borrowed.pth").write_text("\n".join([str(folder / "src"), *lent]))


def _migrations(folder: Path) -> list[Path]:
    return sorted((folder / MIGRATIONS).glob("*.sql"))


def _check_same_history(folder: Path) -> None:
    """Old migrations must be unchanged, and new ones compatible with the old version."""
    known = {file.name: hashlib.sha256(file.read_bytes()).digest() for file in _migrations(ROOT)}
    older = _migrations(folder)
    for file in older:
        if known.pop(file.name, None) != hashlib.sha256(file.read_bytes()).digest():
            raise CannotUpgrade(
                f"Migration {file.name} differs from the one in the previous version: restore it, or, if that version "
                f"was never released, name a later commit in {PREVIOUS_FILE.relative_to(ROOT)}."
            )
    for name in known:
        text = (ROOT / MIGRATIONS / name).read_text()
        said = [line for line in text.splitlines()[:2] if line.startswith("-- detent: compatible with ")]
        if not said or int(said[0].split()[-1]) > len(older):
            raise CannotUpgrade(
                f"Migration {name} is not compatible with the previous version, so all old nodes must be stopped "
                f"for this upgrade. After releasing it, name that commit in {PREVIOUS_FILE.relative_to(ROOT)}."
            )


if __name__ == "__main__":
    try:
        print(previous().python)
    except CannotUpgrade as error:
        sys.exit(str(error))
