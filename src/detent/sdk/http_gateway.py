"""The way into a cluster through its API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast
from uuid import UUID

from detent.client import AsyncClient
from detent.contract.job import Job
from detent.contract.run import Run
from detent.contract.task import EnqueuedRun
from detent.domain.on_demand import NewRun
from detent.errors import NotFound
from detent.sdk.gateway import not_registered


class HttpGateway:
    in_memory: ClassVar[bool] = False

    def __init__(self, url: str | None, key: str | None) -> None:
        self._client = AsyncClient(url, key)

    async def enqueue(self, task: str, runs: Sequence[NewRun]) -> list[EnqueuedRun]:
        try:
            return await self._client.enqueue_many(task, list(runs))
        except NotFound as error:
            raise not_registered(task) from error

    async def run(self, run_id: UUID) -> Run:
        return cast("Run", await self._client.get_run(run_id))

    async def cancel(self, run_id: UUID) -> None:
        await self._client.cancel_run(run_id)

    async def upsert(self, document: dict[str, Any]) -> Job:
        return (await self._client.upsert_job(document)).job

    async def close(self) -> None:
        await self._client.close()
