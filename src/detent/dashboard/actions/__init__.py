"""What can be changed from a page: each change calls the handler of the API that does it, as the one who asks."""

from __future__ import annotations

from detent.dashboard.actions import cluster, dead_letters, jobs, many, runs
from detent.dashboard.changes import Change

ALL: tuple[Change, ...] = (*many.changes, *jobs.changes, *runs.changes, *dead_letters.changes, *cluster.changes)
