"""One module per page: it loads the values for the page's template."""

from __future__ import annotations

from detent.dashboard.page import PageView
from detent.dashboard.views import (
    builder,
    changes,
    cluster,
    dead_letters,
    job,
    jobs,
    overview,
    problems,
    run,
    runs,
    tasks,
    timeline,
)

# In the order in which paths are matched: `/jobs/new` comes before `/jobs/{id}`.
ALL: tuple[PageView, ...] = (
    overview.view,
    jobs.view,
    builder.new_view,
    builder.edit_view,
    job.view,
    tasks.view,
    runs.view,
    run.view,
    timeline.view,
    dead_letters.view,
    problems.view,
    cluster.view,
    changes.view,
)
