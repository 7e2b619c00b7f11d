"""Routes about the lines that runs write."""

from __future__ import annotations

import re
import typing
from time import time
from typing import Annotated

from msgspec import Meta, Struct

from detent.api.context import PREFIX, Api
from detent.api.log_streams import place_text
from detent.api.problems import BadCursor
from detent.api.pull import mask_of, reached
from detent.api.references import run_key
from detent.api.routing import Reply, Routes
from detent.api.runs import found_run
from detent.contract.pull import LogRequest, NewLogLine
from detent.contract.run import LogPage
from detent.domain.masking import Mask
from detent.domain.run_output import OutputLine, shortened
from detent.errors import OwnershipLost
from detent.store.output import LogPlace
from detent.targets.text import storable_text

routes = Routes(PREFIX)

EVENTS = "text/event-stream"
_PLACE = re.compile(r"(\d{1,19})\.(\d{1,10})")


class LogQuery(Struct, forbid_unknown_fields=True):
    """`attempt`: only the lines of this one; 0: of all."""

    attempt: Annotated[int, Meta(ge=0, le=32_767)] = 0
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 500


class LogHeaders(Struct):
    """`Accept: text/event-stream` follows the run until it has ended, from `Last-Event-ID` on."""

    accept: str | None = None
    last_event_id: str | None = None


@routes.get("/runs/{id}/logs")
async def list_run_logs(api: Api, id: str, query: LogQuery, headers: LogHeaders) -> Reply[LogPage]:  # noqa: A002 - the name of the path parameter is part of the contract
    """List the lines that a run has written, or follow them as events."""
    key = run_key(str((await found_run(api, id)).id))
    place, attempt = _place(headers.last_event_id or query.cursor), query.attempt or None
    if EVENTS in (headers.accept or ""):
        return typing.cast("Reply[LogPage]", api.streams.follow(api.caller, key, place, attempt))
    part = await api.store.output.read(key, place, tenant=api.tenant, attempt=attempt, limit=query.limit)
    last = place_text(part.place)
    page = LogPage(items=part.lines, left_out=part.left_out, next_cursor=last if part.more else None, last=last)
    return Reply(page)


@routes.post("/runs/{id}/logs", scope="work", status=204)
async def add_run_logs(api: Api, id: str, body: LogRequest) -> None:  # noqa: A002 - as above
    """Add lines to a claimed run. Of each attempt the first and the last ones are kept."""
    key = await reached(api, id)
    limit = api.settings.run_log_bytes
    if not limit:
        return
    mask = await mask_of(api, id, body.token)
    now = time()
    lines = [_taken(line, mask, now) for line in body.lines]
    if not await api.store.output.add_pulled(key, body.token, lines, limit, tenant=api.tenant):
        raise OwnershipLost(f"The run {id} is no longer held under this token: its lines are refused.")


def _taken(line: NewLogLine, mask: Mask | None, now: float) -> OutputLine:
    at = now if line.at is None else line.at.timestamp()
    message = line.message if mask is None else mask.text(line.message)
    return OutputLine(0, int(at * 1000), line.level, storable_text(line.logger), storable_text(shortened(message)))


def _place(cursor: str | None) -> LogPlace:
    if cursor is None:
        return LogPlace()
    found = _PLACE.fullmatch(cursor)
    if found is None or int(found[1]) >= 1 << 63 or int(found[2]) >= 1 << 31:
        raise BadCursor
    return LogPlace(int(found[1]), int(found[2]))
