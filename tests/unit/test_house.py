"""The layout of the package: unique class names, few modules in its root, short files."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import detent

ROOT = Path(detent.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))


def public_classes(module: Path) -> list[str]:
    tree = ast.parse(module.read_text("utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_a_public_class_name_exists_once() -> None:
    count = Counter(name for module in MODULES for name in public_classes(module))
    assert {name for name, times in count.items() if times > 1} == set()


def test_the_root_of_the_package_has_at_most_six_modules() -> None:
    assert len([path for path in ROOT.iterdir() if path.suffix == ".py"]) <= 6


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {str(module.relative_to(ROOT)): len(module.read_text("utf-8").splitlines()) for module in MODULES}
    assert {name for name, lines in lengths.items() if lines > 400} == set()
