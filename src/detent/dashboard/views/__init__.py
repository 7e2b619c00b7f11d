"""One module per view: what it looks at, as plain values for its template."""

from __future__ import annotations

from detent.dashboard.page import View
from detent.dashboard.views import (
    builder,
    cluster,
    dead_letters,
    job,
    jobs,
    overview,
    problems,
    run,
    runs,
    timeline,
)

# In the order in which paths are tried: `/jobs/new` is no job.
ALL: tuple[View, ...] = (
    overview.view,
    jobs.view,
    builder.new_view,
    builder.edit_view,
    job.view,
    runs.view,
    run.view,
    timeline.view,
    dead_letters.view,
    problems.view,
    cluster.view,
)
