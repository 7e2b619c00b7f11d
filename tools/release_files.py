"""The files of a release, made from the newest commit and from nothing else.

    python -m tools.release_files [folder]

writes the source archive, the wheel, the bill of materials and SHA256SUMS to dist. The same commit gives the same bytes
in any folder, under any umask and at any time, with the Python and the build backend of requirements/dev.lock: so
anyone can build a release again and compare the sums.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from tools import sbom


def export(commit: str, folder: Path) -> None:
    """The tracked files of a commit: what lies around in the checkout is not part of a release."""
    done = subprocess.run(["git", "archive", commit], cwd=sbom.ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def build(source: Path, folder: Path, epoch: int) -> None:
    """The source archive of a folder, and the wheel made from that archive."""
    _hatchling("sdist", source, folder, epoch)
    (archive,) = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="detent-release-") as name:
        with tarfile.open(archive) as opened:
            opened.extractall(name, filter="data")
        _hatchling("wheel", Path(name, archive.name.removesuffix(".tar.gz")), folder, epoch)


def _hatchling(target: str, source: Path, folder: Path, epoch: int) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder.resolve())]
    done = subprocess.run(
        command, cwd=source, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}, capture_output=True, text=True
    )
    if done.returncode:
        raise sbom.CannotRelease(f"The {target} cannot be built:\n{done.stdout}{done.stderr}")


def write_sums(folder: Path, files: list[Path]) -> Path:
    sums = folder / "SHA256SUMS"
    lines = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files))
    sums.write_text("".join(lines), "utf-8")
    return sums


def release(folder: Path) -> list[Path]:
    """Replaces the folder's files of an earlier build, so that SHA256SUMS names all that is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("detent-*.whl", "detent-*.tar.gz", "detent-*.cdx.json"):
        for file in folder.glob(pattern):
            file.unlink()
    epoch = sbom.commit_time()
    with tempfile.TemporaryDirectory(prefix="detent-release-") as name:
        source = Path(name)
        export("HEAD", source)
        build(source, folder, epoch)
        sbom.write(source, folder, epoch)
    files = sorted(folder.glob("detent-*"))
    return [*files, write_sums(folder, files)]


def main(folder: Path) -> None:
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=sbom.ROOT, capture_output=True, text=True, check=True
    ).stdout
    if changed:
        print("The checkout has changes that are not committed: they are not in these files.", file=sys.stderr)
    release(folder)
    print((folder / "SHA256SUMS").read_text("utf-8"), end="")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
    except sbom.CannotRelease as error:
        sys.exit(str(error))
