"""What a caller that only reads does not see: literal values of headers that hold credentials.

Applied to what a handler returns, so that the routes and the pages of the dashboard, which call the same handlers, show
the same.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec

from detent.api.auth import Caller
from detent.contract.job import Job
from detent.contract.page import Page
from detent.contract.revision import WholeRevision
from detent.domain.sensitive import masked_target

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


def sees_headers(caller: Caller) -> bool:
    return caller.may_everywhere("operate")


def masked(value: Any) -> Any:
    """The answer as a reader sees it."""
    match value:
        case Job():
            target = masked_target(value.target)
            return value if target is value.target else msgspec.structs.replace(value, target=target)
        case WholeRevision(definition=spec) if spec is not None:
            shown = msgspec.structs.replace(spec, target=masked_target(spec.target))
            return msgspec.structs.replace(value, definition=shown)
        case Page(items=items):
            return msgspec.structs.replace(value, items=[masked(item) for item in items])
        case _:
            return value


def for_caller(handler: Handler, inside: Callable[[Any, Callable[[Any], Any]], Any]) -> Handler:
    """The handler, with an answer that its caller may see; `inside` applies a change to the value of a reply."""

    @functools.wraps(handler)
    async def shown(api: Any, *args: Any, **given: Any) -> Any:
        answer = await handler(api, *args, **given)
        return answer if sees_headers(api.caller) else inside(answer, masked)

    return cast("Handler", shown)
