"""Vendored files match their checksums, and no page loads from another server."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import detent.dashboard

PACKAGE = Path(detent.dashboard.__file__).parent
PLACES = {
    "the dashboard": (PACKAGE / "static" / "vendor", PACKAGE / "VENDOR.sha256"),
    "the tests": (Path(__file__).parent / "vendor", Path(__file__).parent / "vendor" / "SHA256SUMS"),
}


@pytest.mark.parametrize("place", PLACES)
def test_vendored_files_have_their_checksums_and_licences(place: str) -> None:
    folder, sums = PLACES[place]
    expected = {name: digest for digest, name in (line.split() for line in sums.read_text().splitlines())}
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.name != sums.name
    }
    assert found == expected
    assert any(name.startswith("LICENSE") for name in found)


def test_no_page_loads_from_another_server() -> None:
    own = [file for file in PACKAGE.rglob("*") if file.suffix in (".js", ".css", ".html", ".svg")]
    for file in own:
        if "vendor" not in file.parts:
            text = file.read_text().replace("http://www.w3.org/2000/svg", "")
            for word in ('src="http', 'href="http', "url(http", "@import", "eval(", "innerHTML"):
                assert word not in text.replace('hx-swap="innerHTML"', ""), f"{file.name} has {word}"
