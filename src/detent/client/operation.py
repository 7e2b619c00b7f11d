"""A verb of the API, described once and sent by any client. Nothing here does I/O.

An operation is one request, a listing is one request per page, and a procedure is a generator that yields requests and
pauses. Each is a descriptor. On `Client` it returns the result, on `AsyncClient` a coroutine or an async iterator, on
`JsonClient` the JSON as the server sent it; the parameters are the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload
from uuid import uuid4

from detent.client.transport import ONCE, ApiAnswer, Document, encode, with_query
from detent.contract.page import Page
from detent.domain.documents import plain

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Item = TypeVar("Item")


class Request(Generic[Result_co]):
    """One call of the API, not yet sent.

    `patience` is added to the timeout: the seconds that the server may take on purpose. A request that must take
    effect `once` gets an idempotency key, so that it can be sent again when no answer came. `answers` are statuses
    beyond 2xx whose body is a result too.
    """

    def __init__(
        self,
        method: str,
        path: str,
        read: Callable[[ApiAnswer], Result_co],
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        patience: float = 0,
        once: bool = False,
        answers: tuple[int, ...] = (),
    ) -> None:
        self.method = method
        self.path = path
        self.read = read
        self.query = query or {}
        self.body = body
        self.headers = {**(headers or {}), **({ONCE: str(uuid4())} if once else {})}
        self.patience = patience
        self.answers = answers

    @property
    def target(self) -> str:
        return with_query(self.path, self.query)

    def content(self) -> bytes | None:
        return None if self.body is None else encode(plain(self.body))

    def accepts(self, answer: ApiAnswer) -> bool:
        return answer.good or answer.status in self.answers

    def after(self, cursor: str) -> Request[Result_co]:
        """The request for the following page."""
        return self.page(cursor=cursor)

    def page(self, **paging: object) -> Request[Result_co]:
        """The request for a page with this `limit` and `cursor`."""
        return Request(self.method, self.path, self.read, query={**self.query, **paging})


# What a procedure yields: a request, which is answered with its result, or seconds to wait.
Step = Request[Any] | float
Steps = Generator[Step, Any, Result]


class RequestSender(Protocol):
    """Sends a request and blocks until the answer."""

    def _send(self, request: Request[Result]) -> Result: ...
    def _items(self, request: Request[Page[Item]]) -> Iterator[Item]: ...
    def _follow(self, steps: Steps[Result]) -> Result: ...


class AsyncRequestSender(Protocol):
    """Sends a request and is awaited."""

    async def _send(self, request: Request[Result]) -> Result: ...
    def _items(self, request: Request[Page[Item]]) -> AsyncIterator[Item]: ...
    async def _follow(self, steps: Steps[Result]) -> Result: ...


class JsonSender(Protocol):
    """Sends a request and returns its answer as JSON."""

    def _send(self, request: Request[Any]) -> Document: ...
    def _items(self, request: Request[Any]) -> JsonPages: ...


class JsonPages(Protocol):
    """A listing whose items are JSON."""

    def __iter__(self) -> Iterator[Document]: ...
    def page(self, limit: int | None = None, cursor: str | None = None) -> Document: ...
    def gather(self, limit: int, cursor: str | None = None) -> Document: ...


class Operation(Generic[Parameters, Result]):
    """A verb that is a single request."""

    def __init__(self, make: Callable[Parameters, Request[Result]]) -> None:
        self.make = make

    @overload
    def __get__(self, client: None, owner: type) -> Operation[Parameters, Result]: ...
    @overload
    def __get__(self, client: RequestSender, owner: type) -> Callable[Parameters, Result]: ...
    @overload
    def __get__(self, client: AsyncRequestSender, owner: type) -> Callable[Parameters, Coroutine[Any, Any, Result]]: ...
    @overload
    def __get__(self, client: JsonSender, owner: type) -> Callable[Parameters, Document]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _joined(client._send, self.make)


class Listing(Generic[Parameters, Item]):
    """A verb that is one request per page."""

    def __init__(self, make: Callable[Parameters, Request[Page[Item]]]) -> None:
        self.make = make

    @overload
    def __get__(self, client: None, owner: type) -> Listing[Parameters, Item]: ...
    @overload
    def __get__(self, client: RequestSender, owner: type) -> Callable[Parameters, Iterator[Item]]: ...
    @overload
    def __get__(self, client: AsyncRequestSender, owner: type) -> Callable[Parameters, AsyncIterator[Item]]: ...
    @overload
    def __get__(self, client: JsonSender, owner: type) -> Callable[Parameters, JsonPages]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _joined(client._items, self.make)


class Procedure(Generic[Parameters, Result]):
    """A verb that sends several requests with pauses in between."""

    def __init__(self, make: Callable[Parameters, Steps[Result]]) -> None:
        self.make = make

    @overload
    def __get__(self, client: None, owner: type) -> Procedure[Parameters, Result]: ...
    @overload
    def __get__(self, client: RequestSender, owner: type) -> Callable[Parameters, Result]: ...
    @overload
    def __get__(self, client: AsyncRequestSender, owner: type) -> Callable[Parameters, Coroutine[Any, Any, Result]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _joined(client._follow, self.make)


def _joined(send: Callable[[Any], Any], make: Callable[..., Any]) -> Callable[..., Any]:
    def verb(*arguments: Any, **options: Any) -> Any:
        return send(make(*arguments, **options))

    return update_wrapper(verb, make)
