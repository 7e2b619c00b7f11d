"""Checks of a code block that do not run it: that it is valid in its language."""

from __future__ import annotations

import ast
import configparser
import json
import subprocess
import tomllib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import yaml

from detent.api.problems import Problem
from detent.contract.job import Job
from detent.contract.run import Run
from detent.declarative.jobs_file import read_files
from detent.domain.registration import prepare, read_document
from detent.settings.settings import Settings
from tests.docs.docs_pages import Block

NOW = datetime(2026, 11, 15, tzinfo=UTC)
ANY_ID = UUID("01a1debf-fe45-7743-9988-fc906f42c7e3")


def check_shell(block: Block) -> None:
    _accepted(["bash", "-n"], block)


def check_python(block: Block) -> None:
    ast.parse(block.text)


def check_ini(block: Block) -> None:
    reader = configparser.ConfigParser(strict=False, interpolation=None)
    reader.optionxform = str  # type: ignore[assignment,method-assign]  # keys of units are written as they are
    reader.read_string(block.text)
    assert reader.sections(), f"{block.place} has no section"


def check_json(block: Block) -> None:
    check_document(block, json.loads(block.text))


def check_yaml(block: Block) -> None:
    document = yaml.safe_load(block.text)
    if block.marker == "wrong on purpose":
        assert read_files([("wrong.yaml", block.text)], NOW).faults, f"{block.place} is right"
    elif isinstance(document, dict) and "jobs" in document:
        _check_jobs_file(block, ".yaml")
    else:
        check_document(block, document)


def check_toml(block: Block) -> None:
    document = tomllib.loads(block.text)
    if "jobs" in document:
        _check_jobs_file(block, ".toml")
    elif block.title == "detent.toml":
        flat = {key: value for key, value in document.items() if not isinstance(value, dict)}
        Settings.load(flat, {})


def check_document(block: Block, document: Any) -> None:
    """A document that looks like one of ours must be one."""
    if not isinstance(document, dict):
        return
    if isinstance(document.get("jobs"), list):
        _check_jobs_file(block, ".json")
    elif isinstance(document.get("items"), list):
        for item in document["items"]:
            check_document(block, item)
    elif "revision" in document and "schedule" in document:
        msgspec.convert(document, Job, strict=False)
    elif "schedule" in document and "target" in document:
        prepare(read_document(document), ANY_ID, 1, NOW)
    elif "scheduled_at" in document and "attempts" in document:
        msgspec.json.decode(json.dumps(document), type=Run)
    elif "detail" in document and "trace_id" in document:
        msgspec.convert(document, Problem)


def _check_jobs_file(block: Block, suffix: str) -> None:
    faults = read_files([(f"{block.place}{suffix}", block.text)], NOW).faults
    assert not faults, "\n".join(f"{fault.source}:{fault.line}: {fault.message}" for fault in faults)


def _accepted(command: list[str], block: Block) -> None:
    done = subprocess.run(command, input=block.text, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{block.place}: {done.stderr}"


SYNTAX = {
    "sh": check_shell,
    "python": check_python,
    "json": check_json,
    "yaml": check_yaml,
    "toml": check_toml,
    "ini": check_ini,
}
