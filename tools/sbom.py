"""The software bill of materials of a release, as CycloneDX 1.6: what detent needs at run time, and what it bundles.

    python -m tools.sbom [folder]

writes detent-VERSION.cdx.json to dist. Versions and hashes are those of requirements/dev.lock, which the tests use.
Tools of the development environment are left out. Two runs on one commit write the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import License, LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = Path("requirements/dev.lock")
VENDORED = Path("src/detent/dashboard/VENDOR.sha256")

_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)")
_HASH = re.compile(r"--hash=sha256:(?P<digest>[0-9a-f]{64})")
_VENDORED_FILE = re.compile(r"(?P<name>[a-z-]+)-(?P<version>\d+(\.\d+)+)\.min\.(js|css)")
# The npm packages of which the dashboard bundles files, by the names of the files.
_NPM = {"htmx": ("htmx.org", "0BSD"), "htmx-sse": ("htmx.org", "0BSD"), "uplot": ("uplot", "MIT")}


class CannotRelease(Exception):  # noqa: N818 - named after what happened
    """One sentence that says why files of a release cannot be made, and what helps."""


class Pin(NamedTuple):
    version: str
    digests: tuple[str, ...]


def read_lock(text: str) -> dict[str, Pin]:
    """Each package of a lock with its version and the hashes of its files."""
    pins: dict[str, Pin] = {}
    for entry in re.sub(r"\\\n", " ", text).splitlines():
        if found := _PIN.match(entry):
            pins[canonicalize_name(found["name"])] = Pin(found["version"], tuple(sorted(_HASH.findall(entry))))
    return pins


def needed(roots: Iterable[Requirement]) -> dict[str, set[str]]:
    """Every package that these requirements install here, each with the packages that it requires itself."""
    edges: dict[str, set[str]] = {}
    seen = set()
    waiting = list(roots)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        below = list(_applicable(_distribution(name).requires or (), requirement.extras))
        edges.setdefault(name, set()).update(canonicalize_name(each.name) for each in below)
        waiting += below
    return edges


def _applicable(lines: Iterable[str], extras: Iterable[str] = ()) -> Iterator[Requirement]:
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _distribution(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise CannotRelease(f"{name} is needed at run time and not installed: run `make lock`, then again.") from None


def bill(root: Path, epoch: int) -> Bom:
    """The bill of the checkout in this folder, dated with the time of its commit."""
    project: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    lock = (root / LOCK).read_text("utf-8")
    detent = _component(project["name"], _version(root), "pypi", ComponentType.APPLICATION)
    detent.licenses = [LicenseFactory().make_from_string(project["license"])]
    identity = hashlib.sha256(f"{detent.version}\n{epoch}\n{lock}".encode()).hexdigest()
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, identity),
        metadata=BomMetaData(
            component=detent,
            timestamp=datetime.fromtimestamp(epoch, UTC),
            tools=ToolRepository(components=[this_component()]),
        ),
    )
    bundled = list(_bundled((root / VENDORED).read_text("utf-8")))
    bom.components.update(bundled)
    bom.register_dependency(detent, [*_add_packages(bom, project, read_lock(lock)), *bundled])
    return bom


def _add_packages(bom: Bom, project: dict[str, Any], pins: dict[str, Pin]) -> list[Component]:
    """Adds all packages with their edges. Returns those that detent requires itself."""
    base = list(_applicable(project["dependencies"]))
    lists = project["optional-dependencies"].values()
    extras = [each for lines in lists for each in _applicable(lines) if each.name != project["name"]]
    always = needed(base)
    edges = needed([*base, *extras])
    packages = {name: _package(name, pins.get(name), name in always) for name in edges}
    bom.components.update(packages.values())
    for name, below in edges.items():
        bom.register_dependency(packages[name], [packages[each] for each in sorted(below)])
    direct = {canonicalize_name(each.name) for each in (*base, *extras)}
    return [packages[name] for name in sorted(direct)]


def _version(root: Path) -> str:
    found = re.search(r'__version__ = "(.+)"', (root / "src/detent/version.py").read_text("utf-8"))
    assert found is not None
    return found[1]


def _component(name: str, version: str, registry: str, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    purl = PackageURL(registry, None, name, version)
    return Component(name=name, version=version, type=kind, purl=purl, bom_ref=purl.to_string())


def _package(name: str, pin: Pin | None, always: bool) -> Component:
    installed = _distribution(name)
    if pin is None or not pin.digests:
        raise CannotRelease(f"{LOCK} has no hashes for {name}, which is needed at run time: run `make lock`.")
    if installed.version != pin.version:
        raise CannotRelease(f"{name} {installed.version} is installed, {LOCK} has {pin.version}: run `make clean`.")
    component = _component(name, pin.version, "pypi")
    component.scope = ComponentScope.REQUIRED if always else ComponentScope.OPTIONAL
    component.licenses = _licences(installed)
    # The lock has the hashes of all files of a release. None of them is the hash of "the component".
    component.external_references = [
        ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(component.purl.to_string()),
            comment="the files of this release in the package index",
            hashes=_sha256(pin.digests),
        )
    ]
    return component


def _licences(installed: metadata.Distribution) -> list[License]:
    """What the package declares: an SPDX expression if there is one, otherwise the names in its classifiers."""
    declared = installed.metadata
    make = LicenseFactory()
    for field in ("License-Expression", "License"):
        licence = make.make_from_string("".join(declared.get_all(field) or ()) or "unknown")
        if isinstance(licence, LicenseExpression) or licence.id is not None:
            return [licence]
    classifiers = [line for line in declared.get_all("Classifier") or () if line.startswith("License :: ")]
    names = sorted({line.rpartition(" :: ")[2] for line in classifiers} - {"OSI Approved"})
    return [make.make_with_name(name) for name in names]


def _bundled(sums: str) -> Iterator[Component]:
    """The npm packages of which the dashboard has files, each with these files."""
    packages: dict[str, Component] = {}
    for digest, file in (line.split() for line in sums.splitlines()):
        if file.startswith("LICENSE"):
            continue
        found = _VENDORED_FILE.fullmatch(file)
        if found is None or found["name"] not in _NPM:
            raise CannotRelease(f"{VENDORED} lists {file}: name its npm package in tools/sbom.py.")
        name, licence = _NPM[found["name"]]
        component = packages.setdefault(name, _component(name, found["version"], "npm"))
        component.scope = ComponentScope.REQUIRED
        component.licenses = [LicenseFactory().make_with_id(licence)]
        component.components.add(
            Component(name=file, type=ComponentType.FILE, bom_ref=f"file:{file}", hashes=_sha256([digest]))
        )
    yield from packages.values()


def _sha256(digests: Iterable[str]) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in digests]


def as_json(bom: Bom) -> str:
    """Validated against the schema of CycloneDX 1.6."""
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        raise CannotRelease(f"The bill of materials does not follow the schema of CycloneDX 1.6: {error}")
    return f"{text}\n"


def write(root: Path, folder: Path, epoch: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"detent-{_version(root)}.cdx.json"
    file.write_text(as_json(bill(root, epoch)), "utf-8")
    return file


def commit_time(root: Path = ROOT) -> int:
    """SOURCE_DATE_EPOCH if it is set, otherwise the time of the newest commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotRelease("This is no git checkout: set SOURCE_DATE_EPOCH to the time of the commit in seconds.")
    return int(done.stdout)


if __name__ == "__main__":
    try:
        print(write(ROOT, Path(sys.argv[1] if len(sys.argv) > 1 else "dist"), commit_time()))
    except CannotRelease as error:
        sys.exit(str(error))
