"""Routes about queues: how many runs wait, and the limits of concurrency and rate."""

from __future__ import annotations

from msgspec import Struct

from detent.api.context import PREFIX, Api
from detent.api.routing import Routes
from detent.api.tenants import Count, Rate
from detent.contract.page import Page
from detent.contract.queue import Queue
from detent.domain.text import check_seen
from detent.errors import UsageError
from detent.store.queues import RunLimits

routes = Routes(PREFIX)

LONGEST_NAME = 200


class QueueLimitsRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """How many runs of the queue may run at once, and how many may start per second; null: no limit."""

    max_concurrent: Count | None = None
    rate_per_second: Rate | None = None


@routes.get("/queues")
async def list_queues(api: Api) -> Page[Queue]:
    """List the queues by name, with their limits and how many runs are in them."""
    return Page(await api.store.queues.list(tenant=api.tenant), None)


@routes.put("/queues/{name}", scope="write")
async def limit_queue(api: Api, name: str, body: QueueLimitsRequest) -> Queue:
    """Replace the limits of a queue; every node applies them within seconds."""
    check_length(name)
    check_seen(name, "The queue")
    return await api.store.queues.limit(name, RunLimits(body.max_concurrent, body.rate_per_second), tenant=api.tenant)


def check_length(name: str) -> None:
    if not 1 <= len(name) <= LONGEST_NAME:
        raise UsageError(f"The name of the queue has {len(name)} characters: give 1 to {LONGEST_NAME}.")
