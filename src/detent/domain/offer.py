"""What a transport carries: offers, by which workers learn that a run waits. No I/O.

An offer gives no right to a run. The row in `live_runs` is the truth and its claim is the fence: offers may be lost,
doubled, late or out of order, and cost time or a statement that finds nothing, never a second run.
"""

from __future__ import annotations

from datetime import datetime

import msgspec


class RunOffer(msgspec.Struct, frozen=True, gc=False, tag="run", tag_field="kind"):
    """A run waits in its queue, to be claimed by its key. `queue` is the number of the queue, which is also the
    channel; `token` and `due` are those of the row when it was offered. `run_id` is its key in the form of the API, for
    programs that pull."""

    queue: int
    job: int
    lane: int
    scheduled_at: datetime
    serial: int
    token: int
    revision: int
    priority: int
    due: datetime
    run_id: str = ""


class QueueOffer(msgspec.Struct, frozen=True, gc=False, tag="queue", tag_field="kind"):
    """Runs wait in this queue that cannot be claimed by key: on-demand runs, runs under limits, runs of tenants that
    share workers. A worker claims from the queue as it does without a transport."""

    queue: int
    priority: int
    due: datetime


Offer = RunOffer | QueueOffer

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Offer] = msgspec.json.Decoder(Offer)


def encode_offer(offer: Offer) -> bytes:
    return _encoder.encode(offer)


def decode_offer(body: bytes) -> Offer | None:
    """None: not an offer, or of a version that this process does not know. It is dropped: the scan finds the run."""
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError:
        return None
