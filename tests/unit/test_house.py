"""The layout of the package: unique class names, few modules in its root, short files."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import detent

ROOT = Path(detent.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

# Names that are not unique yet. The set is exact: it must shrink with every name that is made unique.
NOT_YET_UNIQUE = {
    "Account",
    "Answer",
    "Beat",
    "Cancelled",
    "Change",
    "Client",
    "Done",
    "Due",
    "Expectation",
    "Field",
    "Finding",
    "Heartbeat",
    "Held",
    "Limits",
    "Mark",
    "Pace",
    "Page",
    "Plan",
    "Planner",
    "Problem",
    "Process",
    "Redriven",
    "Registered",
    "Revision",
    "Room",
    "Run",
    "Server",
    "Session",
    "Span",
    "Standing",
    "Story",
    "View",
    "Waiting",
}

# Files above 400 lines, each with its reason.
LONG: dict[str, str] = {
    "node/session.py": "to be cut with the wiring of the session",
    "scheduler/firing.py": "to be cut with the walk",
    "store/embedded.py": "to be cut with the store",
    "worker/worker.py": "to be cut with the walk",
}


def public_classes(module: Path) -> list[str]:
    tree = ast.parse(module.read_text("utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_a_public_class_name_exists_once() -> None:
    count = Counter(name for module in MODULES for name in public_classes(module))
    assert {name for name, times in count.items() if times > 1} == NOT_YET_UNIQUE


def test_the_root_of_the_package_has_at_most_six_modules() -> None:
    assert len([path for path in ROOT.iterdir() if path.suffix == ".py"]) <= 6


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {str(module.relative_to(ROOT)): len(module.read_text("utf-8").splitlines()) for module in MODULES}
    assert {name for name, lines in lengths.items() if lines > 400} == LONG.keys()
