"""What a node is given from outside to speak to people: who reports its start, and the parts of `--demo`."""

from __future__ import annotations

from typing import Any, Protocol

from detent.node.served import ServedWork
from detent.sdk.app import Detent
from detent.worker.execute import Runner


class Demo(Protocol):
    """What `--demo` adds to a node: jobs, the endpoint that one of them calls, and a line for each finished attempt."""

    def app(self, url: str) -> Detent: ...

    def add_routes(self, app: Any) -> None: ...

    def reporting(self, runners: dict[Any, Runner]) -> dict[Any, Runner]: ...


class Reporter(Protocol):
    """Hears from the node what people want to know. `interactive`: a person reads it at a terminal."""

    interactive: bool

    def note(self, text: str) -> None: ...

    def started(self, url: str | None, keys_needed: bool = False, served: ServedWork | None = None) -> None: ...
