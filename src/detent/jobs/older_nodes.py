"""Jobs that nodes of an older version cannot read are refused while the cluster has such nodes."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from detent.domain.identity import node_name
from detent.domain.job import CeleryTarget, HttpTarget, JobSpec, Target, TopicTarget
from detent.domain.template import is_template
from detent.errors import Conflict
from detent.store import Store

TASKS = 21
"""The migration that came with tasks, wide priorities and concurrency limits."""
RETRIES_BY_EXCEPTION = 23
"""The migration of the release that came with retry_on and retry_delays."""
TARGETS = 28
"""The last migration of the release that came with topics, Celery, callbacks, templates and dead_letter_topic."""
SCHEDULES = 29
"""The migration of the release that came with `also`, `exclude` and `after` of schedules."""
FORMER_PRIORITIES = range(10)


async def check_versions(store: Store, items: Iterable[object]) -> None:
    """Of items that may also be faults, which are reported elsewhere."""
    found = [(part, item) for item in items if isinstance(item, JobSpec) and (part := _newest_part(item))]
    if not found:
        return
    (needed, why), job = max(found, key=lambda each: each[0][0])
    older = await store.nodes.older_than(needed)
    if older is not None:
        name = "The job" if job.name is None else f"The job {job.name!r}"
        raise Conflict(
            f"{name} {why}, and the node {node_name(older.node)} (version {older.version}) cannot read it: upgrade "
            "all nodes of the cluster first."
        )


def _newest_part(spec: JobSpec) -> tuple[int, str] | None:
    """The migration that a node has to know to read the job, and why; None: nodes of all versions read it."""
    if isinstance(spec.schedule, dict):
        for name in ("also", "exclude", "after"):
            if spec.schedule.get(name):
                return SCHEDULES, f"has {name!r} in its schedule"
    if spec.dead_letter_topic is not None:
        return TARGETS, "has a dead_letter_topic"
    if (part := _new_part_of_target(spec.target)) is not None:
        return TARGETS, part
    if spec.retry_on or spec.retry_delays:
        return RETRIES_BY_EXCEPTION, "has retries by exception"
    if spec.schedule is None:
        return TASKS, "has no schedule"
    if spec.priority not in FORMER_PRIORITIES:
        return TASKS, f"has the priority {spec.priority}"
    if spec.concurrency_limit is not None or spec.concurrency_rate is not None or spec.concurrency_key is not None:
        return TASKS, "has a concurrency limit"
    return None


def _new_part_of_target(target: Target) -> str | None:
    if isinstance(target, TopicTarget | CeleryTarget):
        return "has a topic target" if isinstance(target, TopicTarget) else "has a Celery target"
    if not isinstance(target, HttpTarget):
        return None
    for field in ("body", "statuses", "host_concurrency", "callback"):
        if getattr(target, field) is not UNSET:
            return f"has target.{field}"
    texts = (target.url, *(value for value in target.headers.values() if isinstance(value, str)))
    return "has a template" if any(map(is_template, texts)) else None
