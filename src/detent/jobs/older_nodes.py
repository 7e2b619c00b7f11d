"""Jobs that nodes of an older version cannot read are refused while the cluster has such nodes."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from detent.domain.identity import node_name
from detent.domain.job import CeleryTarget, HttpTarget, JobSpec, Target, TopicTarget
from detent.domain.schedule.cron_fields import uses_hash
from detent.domain.template import is_template
from detent.errors import Conflict
from detent.store import Store

TASKS = 21
"""The migration that came with tasks, wide priorities and concurrency limits."""
RETRIES_BY_EXCEPTION = 23
"""The migration of the release that came with retry_on and retry_delays."""
TARGETS = 28
"""The last migration of the release that came with topics, Celery, callbacks, templates and dead_letter_topic."""
SCHEDULES_OF_OTHERS = 29
"""The migration that came with the aws dialect, five fields in the quartz dialect, and `H` by name."""
TICK_OPTIONS = 30
"""The migration of the release that came with payload_schema, release and tzdata_policy."""
SCHEDULE_PARTS = 31
"""The migration of the release that came with `also`, `exclude` and `after` of schedules."""
FORMER_PRIORITIES = range(10)


class OlderNodes(Conflict):
    """A node of an older version is in the cluster and cannot read the job."""


async def check_versions(store: Store, items: Iterable[object]) -> None:
    """Of items that may also be faults, which are reported elsewhere."""
    found = [(part, item) for item in items if isinstance(item, JobSpec) and (part := _newest_part(item))]
    if not found:
        return
    (needed, why), job = max(found, key=lambda each: each[0][0])
    older = await store.nodes.older_than(needed)
    if older is not None:
        name = "The job" if job.name is None else f"The job {job.name!r}"
        raise OlderNodes(
            f"{name} {why}, and the node {node_name(older.node)} (version {older.version}) cannot read it: upgrade "
            "all nodes of the cluster first."
        )


def _newest_part(spec: JobSpec) -> tuple[int, str] | None:
    """The migration that a node has to know to read the job, and why; None: nodes of all versions read it."""
    if isinstance(spec.schedule, dict):
        for name in ("also", "exclude", "after"):
            if spec.schedule.get(name):
                return SCHEDULE_PARTS, f"has {name!r} in its schedule"
    if spec.payload_schema is not None:
        return TICK_OPTIONS, "has a payload_schema"
    if spec.release != "exact" or spec.tzdata_policy != "recompute":
        return TICK_OPTIONS, f"has {'release' if spec.release != 'exact' else 'tzdata_policy'}"
    if (part := _new_part_of_schedule(spec)) is not None:
        return SCHEDULES_OF_OTHERS, part
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


def _new_part_of_schedule(spec: JobSpec) -> str | None:
    text = spec.schedule.get("cron") if isinstance(spec.schedule, dict) else spec.schedule
    if spec.dialect == "aws":
        return "has the dialect aws"
    if not isinstance(text, str):
        return None
    if spec.dialect == "quartz" and len(text.split()) == 5:
        return "has an expression of five fields in the dialect quartz"
    # Older nodes hash another key, and would resume the job at another time than it is fired at.
    return "has H in its schedule" if uses_hash(text) else None


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
