"""A check of the broker that carries offers, from this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from uuid import UUID

from detent.cli.doctor.results import CheckResult, number
from detent.errors import UsageError
from detent.transports.answering import words_of
from detent.transports.choose import choose_transport
from detent.transports.link import CLOSE_SECONDS
from detent.transports.transport import TransportAwayError


async def check_transport(named: str, cluster: UUID, queues: Collection[int]) -> AsyncIterator[CheckResult]:
    """`named`: DETENT_QUEUE of this environment, which need not be that of the nodes. Nothing is sent or taken."""
    try:
        transport = choose_transport(named, str(cluster))
    except UsageError as error:
        yield CheckResult("transport", "fail", error.message, "Install the client, or unset DETENT_QUEUE.")
        return
    if transport is None:
        return
    try:
        await transport.open()
        depths = await transport.depth(queues)
        waiting = number(sum(depth.offers for depth in depths.values()), "offer")
        yield CheckResult("transport", "ok", f"The broker of {transport.name} answers; {waiting} of runs wait there.")
    except Exception as error:  # of a client library, which may fail in any way, as in transports/link.py
        words = str(error) if isinstance(error, TransportAwayError) else f"{words_of(error)}."
        text = f"The broker of {transport.name} does not answer: {words} Runs go through PostgreSQL meanwhile."
        yield CheckResult("transport", "warn", text, "Start the broker, or correct DETENT_QUEUE.")
    finally:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await transport.close()
