"""The changes that pages can request: each calls the API's handler for it, with the visitor as caller."""

from __future__ import annotations

from detent.dashboard.actions import bulk, cluster, dead_letters, jobs, runs
from detent.dashboard.changes import FormChange

ALL: tuple[FormChange, ...] = (*bulk.changes, *jobs.changes, *runs.changes, *dead_letters.changes, *cluster.changes)
