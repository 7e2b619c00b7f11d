"""Schedules that are combined of several, in plain English."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.domain.counts import plural
from detent.domain.schedule.combined import CombinedTicks
from detent.domain.schedule.cron import CronWalls
from detent.domain.schedule.describe import body, describe_cron, describe_days
from detent.domain.schedule.describe_rrule import describe_rule
from detent.domain.schedule.english import join
from detent.domain.schedule.exclusions import DAY_SECONDS, Exclusion, MatchedStretches
from detent.domain.schedule.rrule import RuleWalls

if TYPE_CHECKING:
    from detent.domain.schedule.schedule import Schedule

LISTED_EXCLUSIONS = 5


def describe_combined(schedule: Schedule) -> str:
    assert isinstance(schedule.ticks, CombinedTicks)
    text = "; and ".join(map(body, schedule.ticks.members))
    parts = schedule.ticks.exclusions.parts
    if not parts:
        return text
    words = [_exclusion(part) for part in parts[:LISTED_EXCLUSIONS]]
    if len(parts) > LISTED_EXCLUSIONS:
        words.append(plural(len(parts) - LISTED_EXCLUSIONS, "more exclusion"))
    return f"{text}; except {join(words)}"


def _exclusion(part: Exclusion) -> str:
    if not isinstance(part, MatchedStretches):
        first, slash, last = part.text.partition("/")
        return f"from {first.strip()} to {last.strip()}" if slash else f"on {first}"
    if isinstance(part.walls, CronWalls):
        fields = part.walls.fields
        return describe_days(fields) if part.unit == DAY_SECONDS else describe_cron(fields)
    assert isinstance(part.walls, RuleWalls)
    return describe_rule(part.walls.rule).replace(" at 00:00", "")
