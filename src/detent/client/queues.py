"""Verbs about queues."""

from __future__ import annotations

from detent.client.operation import Listing, Operation, Request
from detent.client.requests import PREFIX, reader
from detent.client.transport import segment
from detent.contract.page import Page
from detent.contract.queue import Queue


def list_queues() -> Request[Page[Queue]]:
    """List the queues by name, with their limits and their waiting and running runs."""
    return Request("GET", f"{PREFIX}/queues", reader(Page[Queue]))


def limit_queue(
    queue: str, *, max_concurrent: int | None = None, rate_per_second: float | None = None
) -> Request[Queue]:
    """Replace the limits of a queue; None is no limit."""
    body = {"max_concurrent": max_concurrent, "rate_per_second": rate_per_second}
    return Request("PUT", f"{PREFIX}/queues/{segment(queue)}", reader(Queue), body=body)


class QueueVerbs:
    """The verbs of the clients about queues."""

    list_queues = Listing(list_queues)
    limit_queue = Operation(limit_queue)
