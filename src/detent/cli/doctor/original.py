"""Checks of what may keep every tick from firing: a copy that nobody has adopted, and a hold."""

from __future__ import annotations

from detent.cli.doctor.findings import Finding
from detent.cluster.admission import Verdict, judge, why_held
from detent.store.db import Row
from detent.store.original import DatabaseIdentity


def check_original(standing: DatabaseIdentity) -> Finding:
    match judge(standing):
        case Verdict.HELD:
            told = f"The database may be a copy: {why_held(standing)}. Nothing fires or runs from it."
            advice = "If the original is gone, or both are to go their own ways: `detent db adopt`."
            return Finding("original", "fail", told, advice)
        case Verdict.FAILED_OVER:
            told = f"The database failed over to timeline {standing.present.timeline}."
            return Finding("original", "warn", told, "The next node that joins raises the incarnation: look again.")
        case Verdict.UNUSED:
            return Finding("original", "ok", "The database has no jobs yet; the first node makes it its own.")
        case _:
            told = f"The database is the original (timeline {standing.present.timeline}, "
            return Finding("original", "ok", f"{told}incarnation {standing.incarnation}).")


def check_hold(row: Row) -> Finding:
    if row["held_at"] is None:
        return Finding("ticks", "ok", "Ticks are not held.")
    told = f"No tick fires since {row['held_at']:%Y-%m-%d %H:%M:%S} UTC"
    why = f"held by {row['held_by']}: {row['held_reason']}"
    return Finding("ticks", "fail", f"{told} ({why}).", "`detent resume --all` lets them fire again.")
