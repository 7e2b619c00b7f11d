"""A verb of the API: described once, sent by any client. Nothing here does I/O.

An operation makes a request, a listing makes one for every page, and a procedure is a generator that yields requests
and pauses. Each is a descriptor: a function of a client that answers, a coroutine function of one that is awaited, with
the same parameters and the same result.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload
from uuid import uuid4

from detent.client.transport import ONCE, Answer
from detent.contract.page import Page

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Item = TypeVar("Item")


class Request(Generic[Result_co]):
    """One call of the API, not yet sent. `patience` is how long the server may take on purpose; what is to happen
    `once` has a key, under which it may be sent again when no answer came."""

    def __init__(
        self,
        method: str,
        path: str,
        read: Callable[[Answer], Result_co],
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        patience: float = 0,
        once: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        self.read = read
        self.query = query or {}
        self.body = body
        self.headers = {**(headers or {}), **({ONCE: str(uuid4())} if once else {})}
        self.patience = patience

    def after(self, cursor: str) -> Request[Result_co]:
        """The same, for the page that follows."""
        return Request(self.method, self.path, self.read, query={**self.query, "cursor": cursor})


# What a procedure yields: a request, answered with what it read, or seconds to let pass.
Step = Request[Any] | float
Steps = Generator[Step, Any, Result]


class Sender(Protocol):
    """A way to send that waits for the answer."""

    def _send(self, request: Request[Result]) -> Result: ...
    def _items(self, request: Request[Page[Item]]) -> Iterator[Item]: ...
    def _follow(self, steps: Steps[Result]) -> Result: ...


class AsyncSender(Protocol):
    """A way to send that is awaited."""

    async def _send(self, request: Request[Result]) -> Result: ...
    def _items(self, request: Request[Page[Item]]) -> AsyncIterator[Item]: ...
    async def _follow(self, steps: Steps[Result]) -> Result: ...


class Operation(Generic[Parameters, Result]):
    """A verb that is one request."""

    def __init__(self, make: Callable[Parameters, Request[Result]]) -> None:
        self.make = make

    @overload
    def __get__(self, client: None, owner: type) -> Operation[Parameters, Result]: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[Parameters, Result]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[Parameters, Coroutine[Any, Any, Result]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _joined(client._send, self.make)


class Listing(Generic[Parameters, Item]):
    """A verb that is a request for every page."""

    def __init__(self, make: Callable[Parameters, Request[Page[Item]]]) -> None:
        self.make = make

    @overload
    def __get__(self, client: None, owner: type) -> Listing[Parameters, Item]: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[Parameters, Iterator[Item]]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[Parameters, AsyncIterator[Item]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _joined(client._items, self.make)


class Procedure(Generic[Parameters, Result]):
    """A verb that takes several requests, and time."""

    def __init__(self, make: Callable[Parameters, Steps[Result]]) -> None:
        self.make = make

    @overload
    def __get__(self, client: None, owner: type) -> Procedure[Parameters, Result]: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[Parameters, Result]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[Parameters, Coroutine[Any, Any, Result]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _joined(client._follow, self.make)


def _joined(send: Callable[[Any], Any], make: Callable[..., Any]) -> Callable[..., Any]:
    def verb(*arguments: Any, **options: Any) -> Any:
        return send(make(*arguments, **options))

    return update_wrapper(verb, make)
