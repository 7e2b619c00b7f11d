"""Jobs that nodes of an older version cannot read are refused while the cluster has such nodes."""

from __future__ import annotations

from collections.abc import Iterable

from detent.domain.identity import node_name
from detent.domain.job import JobSpec
from detent.errors import Conflict
from detent.store import Store

TASKS = 21
"""The migration that came with tasks, wide priorities and concurrency limits."""
FORMER_PRIORITIES = range(10)


async def check_versions(store: Store, items: Iterable[object]) -> None:
    """Of items that may also be faults, which are reported elsewhere."""
    found = next(((item, why) for item in items if isinstance(item, JobSpec) and (why := _new_part(item))), None)
    if found is None:
        return
    older = await store.nodes.older_than(TASKS)
    if older is not None:
        job, why = found
        name = "The job" if job.name is None else f"The job {job.name!r}"
        raise Conflict(
            f"{name} {why}, and the node {node_name(older.node)} (version {older.version}) cannot read it: upgrade "
            "all nodes of the cluster first."
        )


def _new_part(spec: JobSpec) -> str | None:
    """What nodes of an older version cannot read; None: they read all of it."""
    if spec.schedule is None:
        return "has no schedule"
    if spec.priority not in FORMER_PRIORITIES:
        return f"has the priority {spec.priority}"
    if spec.concurrency_limit is not None or spec.concurrency_rate is not None or spec.concurrency_key is not None:
        return "has a concurrency limit"
    return None
