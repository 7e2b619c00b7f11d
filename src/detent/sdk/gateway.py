"""How an app reaches its cluster: what every way in can do.

A task does not know whether its runs go through the database, through the API, or into a test. All methods are called
on the loop of `portal.py`, whichever thread or loop the caller is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from detent.errors import NotFound

if TYPE_CHECKING:
    from uuid import UUID

    from detent.contract.job import Job
    from detent.contract.run import Run
    from detent.contract.task import EnqueuedRun
    from detent.domain.on_demand import NewRun


class Gateway(Protocol):
    """The way into one cluster, as one tenant."""

    in_memory: ClassVar[bool]
    """Runs are kept in this process: there is no transaction of the caller that they could be a part of."""

    async def enqueue(self, task: str, runs: Sequence[NewRun]) -> list[EnqueuedRun]:
        """Enqueue runs of the task or job of this name, all or none; the answers are in the same order."""
        ...

    async def run(self, run_id: UUID) -> Run:
        """The run with its attempts. Raises NotFound."""
        ...

    async def cancel(self, run_id: UUID) -> None:
        """Cancel an unfinished run; a running one is asked to stop. Raises Conflict if it has finished."""
        ...

    async def upsert(self, document: dict[str, Any]) -> Job:
        """Create the job of this name, or change it to this document."""
        ...

    async def close(self) -> None: ...


def not_registered(task: str) -> NotFound:
    """No worker has registered the task, and nothing else has."""
    return NotFound(
        f"There is no task or job {task!r} in this cluster: a worker that is started with the app registers it "
        "(`detent worker --app MODULE:NAME`), and so does `await app.register()`."
    )
