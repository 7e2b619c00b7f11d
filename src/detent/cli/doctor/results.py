"""The results of checks: ok, warning or failure, one sentence, and advice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

from detent.cli import times
from detent.store.db import Row
from detent.store.doctor import Doctor, TooSlow

Status = Literal["ok", "warn", "fail"]


class CheckResult(NamedTuple):
    """`found` is a sentence; `advice` says what to do, or is empty."""

    check: str
    status: Status
    found: str
    advice: str = ""

    def document(self) -> dict[str, Any]:
        return {"check": self.check, "status": self.status, "found": self.found, "advice": self.advice or None}


class ComplaintReport(NamedTuple):
    """A complaint, what was checked for it, and the results."""

    name: str
    complaint: str
    looked_at: list[str]
    findings: list[CheckResult]

    @property
    def status(self) -> Status:
        return worst(self.findings)

    def document(self) -> dict[str, Any]:
        return {
            "story": self.name,
            "complaint": self.complaint,
            "status": self.status,
            "looked_at": self.looked_at,
            "findings": [finding.document() for finding in self.findings],
        }


def worst(findings: list[CheckResult]) -> Status:
    statuses = {finding.status for finding in findings}
    return "fail" if "fail" in statuses else "warn" if "warn" in statuses else "ok"


class Case:
    """One complaint while it is examined: collects what was checked and the results."""

    def __init__(self, doctor: Doctor, job: Row | None) -> None:
        self.doctor = doctor
        self.job = job
        self.looked_at: list[str] = []
        self.findings: list[CheckResult] = []

    @property
    def number(self) -> int | None:
        return None if self.job is None else int(self.job["job"])

    async def check(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        self.looked_at.append(what)
        try:
            await work()
        except TooSlow as error:
            self.add("warn", f"The check of {what} was stopped: {error.message}.", "Check one job with --job.")

    def add(self, status: Status, found: str, advice: str = "") -> None:
        self.findings.append(CheckResult("", status, found, advice))


def some(names: list[str] | None, count: int) -> str:
    """`a, b, c and 4 more`"""
    shown = [name for name in names or [] if name is not None]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 and shown else "")


_ONE = {"are": "is", "were": "was", "run": "runs", "wait": "waits", "need": "needs"}


def number(count: int, thing: str, verb: str = "") -> str:
    """`1 run was`, `2 runs were`"""
    plural = f"{thing}es" if thing.endswith("s") else f"{thing}s"
    text = f"{count} {thing if count == 1 else plural}"
    return f"{text} {_ONE[verb] if count == 1 else verb}" if verb else text


def brief(seconds: float) -> str:
    """A short time: `under 1 ms`, `12 ms`, `1.5 s`."""
    return times.span(seconds * 1000) if seconds >= 0.001 else "under 1 ms"
