"""The bill of materials of a release names what runs, with the hashes of the lock, and is the same for everyone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from detent.version import __version__
from tools import sbom

EPOCH = 1_780_000_000
VENDORED = sbom.ROOT / "src/detent/dashboard/static/vendor"


@pytest.fixture(scope="module")
def text() -> str:
    return sbom.as_json(sbom.bill(sbom.ROOT, EPOCH))


@pytest.fixture(scope="module")
def bill(text: str) -> dict[str, Any]:
    return json.loads(text)


def components(bill: dict[str, Any], registry: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in bill["components"] if each["purl"].startswith(f"pkg:{registry}/")}


def declared(*groups: str) -> set[str]:
    project = tomllib.loads((sbom.ROOT / "pyproject.toml").read_text())["project"]
    lists = {"base": project["dependencies"], **project["optional-dependencies"]}
    lines = [line for group in groups or lists for line in lists[group]]
    return {str(canonicalize_name(Requirement(line).name)) for line in lines} - {"detent"}


def test_the_bill_names_every_package_that_detent_requires(bill: dict[str, Any]) -> None:
    assert bill["specVersion"] == "1.6"
    assert bill["metadata"]["component"]["name"] == "detent"
    assert declared() <= components(bill, "pypi").keys()


def test_packages_that_only_an_extra_requires_are_optional(bill: dict[str, Any]) -> None:
    found = components(bill, "pypi")
    assert {found[name]["scope"] for name in declared("base")} == {"required"}
    assert {found[name]["scope"] for name in declared("zookeeper", "redis", "archive")} == {"optional"}


def test_every_package_has_its_version_and_all_its_hashes_from_the_lock(bill: dict[str, Any]) -> None:
    lock = f"\n{(sbom.ROOT / sbom.LOCK).read_text()}"
    for name, component in components(bill, "pypi").items():
        entry = lock.partition(f"\n{name}=={component['version']} ")[2].partition("==")[0]
        (files,) = (each for each in component["externalReferences"] if each["type"] == "distribution")
        assert {each["alg"] for each in files["hashes"]} == {"SHA-256"}
        assert len(files["hashes"]) == entry.count("--hash=sha256:") > 0, name
        assert all(f"--hash=sha256:{each['content']}" in entry for each in files["hashes"]), name


def test_tools_of_the_development_environment_are_not_in_the_bill(bill: dict[str, Any]) -> None:
    assert {"pytest", "ruff", "mypy", "pip-audit", "hatchling", "schemathesis"}.isdisjoint(components(bill, "pypi"))


def test_scripts_bundled_with_the_dashboard_are_in_the_bill_with_the_hashes_of_their_files(
    bill: dict[str, Any],
) -> None:
    listed = {
        file["name"]: file["hashes"][0]["content"]
        for component in components(bill, "npm").values()
        for file in component["components"]
    }
    scripts = [file for file in VENDORED.iterdir() if file.suffix in (".js", ".css")]
    assert listed == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in scripts}


def test_every_component_is_reached_from_detent_in_the_graph(bill: dict[str, Any]) -> None:
    edges = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    reached: set[str] = set()
    waiting = [bill["metadata"]["component"]["bom-ref"]]
    while waiting:
        ref = waiting.pop()
        if ref not in reached:
            reached.add(ref)
            waiting += edges[ref]
    assert {each["bom-ref"] for each in bill["components"]} == reached - {bill["metadata"]["component"]["bom-ref"]}


def test_another_process_writes_the_same_bytes(text: str, tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": str(EPOCH)}
    command = [sys.executable, "-m", "tools.sbom", str(tmp_path)]
    subprocess.run(command, cwd=sbom.ROOT, env=environ, check=True, capture_output=True)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {f"detent-{__version__}.cdx.json": text}


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("asyncpg==", "asyncpg==9", r"asyncpg \S+ is installed, requirements/dev.lock has 9\S+: run `make clean`"),
        ("asyncpg==", "other==", "no hashes for asyncpg, which is needed at run time: run `make lock`"),
    ],
)
def test_a_lock_that_is_not_what_is_installed_is_refused(
    tmp_path: Path, before: str, after: str, sentence: str
) -> None:
    for name in ("pyproject.toml", "src/detent/version.py", str(sbom.LOCK), str(sbom.VENDORED)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(sbom.ROOT / name, tmp_path / name)
    lock = tmp_path / sbom.LOCK
    lock.write_text(lock.read_text().replace(f"\n{before}", f"\n{after}"))
    with pytest.raises(sbom.CannotRelease, match=sentence):
        sbom.bill(tmp_path, EPOCH)


def test_every_lock_has_hashes_for_every_package_and_names_no_index() -> None:
    locks = sorted((sbom.ROOT / "requirements").glob("*.lock"))
    assert len(locks) == 5
    for lock in locks:
        assert "://" not in lock.read_text(), lock.name
        assert [name for name, pin in sbom.read_lock(lock.read_text()).items() if not pin.digests] == []
