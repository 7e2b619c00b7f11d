"""Checks of what can stop all ticks: an unadopted copy of the database, and a cluster-wide pause."""

from __future__ import annotations

from detent.cli.doctor.results import CheckResult
from detent.cluster.admission import DatabaseOrigin, classify, why_held
from detent.store.db import Row
from detent.store.original import DatabaseIdentity


def check_original(found: DatabaseIdentity) -> CheckResult:
    match classify(found):
        case DatabaseOrigin.HELD:
            text = f"The database may be a copy: {why_held(found)}. No tick fires and no job runs."
            advice = "If the original is gone, or both are meant to run independently: `detent db adopt`."
            return CheckResult("original", "fail", text, advice)
        case DatabaseOrigin.FAILED_OVER:
            text = f"The database failed over to timeline {found.present.timeline}."
            return CheckResult(
                "original", "warn", text, "The next node that joins raises the incarnation: check again."
            )
        case DatabaseOrigin.UNUSED:
            return CheckResult("original", "ok", "The database has no jobs yet; the first node claims it.")
        case _:
            text = f"The database is the original (timeline {found.present.timeline}, "
            return CheckResult("original", "ok", f"{text}incarnation {found.incarnation}).")


def check_hold(row: Row) -> CheckResult:
    if row["held_at"] is None:
        return CheckResult("ticks", "ok", "Ticks are not paused.")
    text = f"All ticks are paused since {row['held_at']:%Y-%m-%d %H:%M:%S} UTC"
    why = f"by {row['held_by']}: {row['held_reason']}"
    return CheckResult("ticks", "fail", f"{text} ({why}).", "`detent resume --all` resumes them.")
