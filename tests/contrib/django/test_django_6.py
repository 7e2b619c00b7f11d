"""The same on Django 6, which needs a newer Python than detent, and Django's own tests of task backends."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contrib.django.project import ROOT
from tests.support.postgres import Postgres

pytestmark = [pytest.mark.long, pytest.mark.system, pytest.mark.timeout(1200)]

NAMES = ("python3.14", "python3.13", "python3.12")
INSTALL_SECONDS = 600


def interpreter() -> str | None:
    """A Python that Django 6 runs on."""
    if sys.version_info >= (3, 12):
        return sys.executable
    found = [path for name in NAMES if (path := shutil.which(name)) is not None]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found += [str(path) for name in NAMES for path in sorted(versions.glob(f"*/bin/{name}"))]
    return next((path for path in found if _works(path)), None)


def _works(path: str) -> bool:
    """A shim of pyenv is there even if its version is not."""
    return subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def django_6() -> Iterator[Path]:
    """The interpreter of an environment with Django 6 and detent. Not in a folder of pytest: another run of
    pytest removes it if this one takes long."""
    python = interpreter()
    if python is None:
        pytest.skip("Django 6 needs Python 3.12 or newer, and none was found here")
    with tempfile.TemporaryDirectory(prefix="detent-django-") as folder:
        yield _environment(python, Path(folder))


def _environment(python: str, folder: Path) -> Path:
    subprocess.run([python, "-m", "venv", str(folder)], check=True, timeout=INSTALL_SECONDS)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "-e", str(ROOT), "django>=6.0", "psycopg[binary]>=3.2"]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode and os.environ.get("CI") != "true":
        pytest.skip(f"Django 6 cannot be installed here: {done.stderr[-500:]}")
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "python"


def test_djangos_own_tests_of_task_backends_pass_on_ours(django_6: Path, postgres: Postgres, tmp_path: Path) -> None:
    sdist = _sdist(django_6, tmp_path)
    with postgres.database_apart() as url, postgres.database_apart() as quiet:
        done = subprocess.run(
            [str(django_6), "-m", "tests.contrib.django.upstream.run", str(sdist)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "DEFAULT_URL": url, "QUIET_URL": quiet},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    ran = re.search(r"(\d+) ran, (\d+) do not apply", done.stdout)
    assert ran is not None
    assert int(ran[1]) >= 60, done.stdout
    assert done.stdout.count("not applicable: ") == int(ran[2])


def _sdist(python: Path, folder: Path) -> Path:
    version = subprocess.check_output(
        [str(python), "-c", "import django; print(django.__version__)"], text=True
    ).strip()
    pip = [str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", f"django=={version}"]
    subprocess.run(pip, cwd=folder, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    (found,) = folder.glob("*.tar.gz")
    return found


def test_the_example_works_on_django_6_as_on_the_backport(django_6: Path) -> None:
    files = [str(Path(__file__).parent / name) for name in ("test_shop.py", "test_enqueuing.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *files],
        env={**os.environ, "DETENT_TEST_DJANGO_PYTHON": str(django_6)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-5000:]
