"""Charts that appear in every row of a list, built as text: a template would take ten times as long.

Every value that is not a number is escaped here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from markupsafe import Markup, escape

from detent.dashboard.charts import ChartMark, bars
from detent.dashboard.formatting import plain_time, seconds, state_class
from detent.domain.counts import plural
from detent.store.overview import RecentRun

STEP = 5
# A run that never started is a small square; any other is a bar whose height is its duration.
SMALL = frozenset({"skipped", "missed", "cancelled", "pending"})
LOW = frozenset({"scheduled", "skipped", "paused", "unread"})
NARROWEST = 0.15  # percent
TITLES = {
    "unaccounted": "due, but no record of it exists",
    "unread": "due; not read: too old, or one of too many",
    "paused": "due while the job is paused",
}


@lru_cache(4096)
def bars_svg(runs: tuple[RecentRun, ...], height: int = 20) -> Markup:
    """The last runs of a job. The same runs give the same chart, so most are drawn once."""
    if not runs:
        return Markup('<span class="none">no runs yet</span>')
    drawn = bars(runs, highest=height)
    dead = sum(bar.status == "dead" for bar in drawn)
    parts = [
        f'<svg class="bars" width="{len(drawn) * STEP}" height="{height}" role="img" '
        f'aria-label="Last runs: {dead} of {len(drawn)} dead">'
    ]
    for position, bar in enumerate(drawn):
        took = "" if bar.seconds is None else f", {seconds(bar.seconds)}"
        reason = f": {escape(bar.reason)}" if bar.reason else ""
        left, kind = position * STEP, state_class(bar.status)
        parts.append(
            f'<g data-run="{bar.run}"><title>{escape(bar.status)}, {plain_time(bar.at)}{took}{reason}</title>'
            f'<rect class="hit" x="{left}" width="{STEP}" height="{height}"/>'
        )
        if bar.status in SMALL:
            parts.append(f'<rect class="bar {kind}" x="{left + 0.5}" y="{height - 4.5}" width="3" height="4"/>')
        else:
            top = height - bar.height
            parts.append(f'<rect class="bar {kind}" x="{left}" y="{top}" width="4" height="{bar.height}"/>')
        if bar.status == "dead":
            parts.append(f'<rect class="notch" x="{left}" y="{height - min(bar.height, 8)}" width="4" height="1.5"/>')
        parts.append("</g>")
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - every value that is not a number is escaped above


def lane_svg(name: str, marks: Sequence[ChartMark], grid: Sequence[float], now_at: float, height: int = 24) -> Markup:
    """The ticks of a job over time."""
    label = escape(f"{name}: {plural(len(marks), 'mark')}")
    parts = [f'<svg height="{height}" width="100%" role="img" aria-label="{label}">']
    parts += [f'<line class="grid" x1="{left}%" x2="{left}%" y1="0" y2="{height}"/>' for left in grid]
    for mark in marks:
        run = f' data-run="{mark.sample}"' if mark.sample else ""
        kind, low = state_class(mark.status), mark.status in LOW
        worst = " at worst" if mark.runs > 1 and mark.status not in ("succeeded", "scheduled") else ""
        left, width = _extent(mark, now_at)
        title = TITLES.get(mark.status) or f"{mark.runs} {mark.status}{worst}"
        parts.append(
            f'<g{run}><rect class="tick {kind}" x="{left}%" y="{8 if low else 4}" width="{width}%" '
            f'height="{8 if low else 16}"><title>{plain_time(mark.at)}: {escape(title)}</title></rect>'
        )
        if mark.status == "dead":
            parts.append(f'<rect class="notch" x="{left}%" y="11" width="{width}%" height="2"/>')
        parts.append("</g>")
    if 0 <= now_at <= 100:
        parts.append(f'<line class="now" x1="{now_at}%" x2="{now_at}%" y1="0" y2="{height}"/>')
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - as above


def _extent(mark: ChartMark, now_at: float) -> tuple[float, float]:
    """Left and width. A mark covers a whole step, but what is recorded ends at now, and what is scheduled begins there.
    A pause lies on both sides."""
    left, right = mark.left, mark.left + mark.width
    if mark.status == "scheduled":
        left = min(max(left, now_at), right - NARROWEST)
    elif mark.status != "paused":
        right = max(min(right, now_at), left + NARROWEST)
    return round(left, 3), round(right - left, 3)
