"""Writes the lines and the progress of this node's runs: one writer, with its own connection and its own pace.

Nothing waits for it. While the database takes nothing, it keeps what fits into `MAX_WAITING_BYTES`; then attempts keep
only their last lines, and what cannot be kept is counted and left out.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from detent.domain.run import Call
from detent.domain.run_output import OutputChunk, ProgressMark
from detent.errors import DetentError
from detent.runtime.bisection import halve_until_alone
from detent.runtime.service import Failing, Loop
from detent.store import Store
from detent.store.db import Rejected
from detent.targets.output import AttemptOutput
from detent.targets.outputs import Collected, Outputs
from detent.telemetry.log import logger

log = logger("output")

EVERY = 0.25
IDLE = 3600.0
BATCH = 200
BATCH_BYTES = 1 << 20
MAX_WAITING_BYTES = 16 << 20
LAST_SECONDS = 2.0


class OutputWriter:
    """Must be constructed on the node's loop. `begin` and `progress` are for any thread."""

    def __init__(self, store: Store, limit: int) -> None:
        self._store = store.output
        self._node_loop = asyncio.get_running_loop()
        self._outputs = Outputs(limit, self._wake_threadsafe)
        self._chunks: list[OutputChunk] = []
        self._marks: dict[str, ProgressMark] = {}
        self._waiting_bytes = 0
        self._left_out = 0
        self._failing = Failing()
        self.limit = limit
        self.loop = Loop("run output", self.tick)

    def begin(self, call: Call) -> AttemptOutput | None:
        return self._outputs.begin(call)

    def progress(self, run_id: str, token: int, fraction: float, message: str) -> None:
        self._outputs.progress(run_id, token, fraction, message)

    def _wake_threadsafe(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: the node has ended
            self._node_loop.call_soon_threadsafe(self.loop.wake)

    def receive(self, message: OutputChunk | ProgressMark) -> None:
        """From a handler process, on the node's loop."""
        if isinstance(message, ProgressMark):
            self._marks[message.run_id] = message
        else:
            self._keep([message])
        self.loop.wake()

    def _keep(self, chunks: list[OutputChunk]) -> None:
        for chunk in chunks:
            if self._waiting_bytes > MAX_WAITING_BYTES:
                self._left_out += 1
            else:
                self._waiting_bytes += len(chunk.lines)
                self._chunks.append(chunk)
        self._outputs.full = self._waiting_bytes > MAX_WAITING_BYTES // 2

    def _take(self, found: Collected) -> None:
        self._keep(found.chunks)
        self._marks |= {mark.run_id: mark for mark in found.marks}

    async def tick(self) -> float:
        # In a thread: masking and encoding take their time where secrets are many, and this loop fires ticks.
        found = await asyncio.to_thread(self._outputs.collect)
        self._take(found)
        if not self._failing.pausing:
            await self._write()
        if found.more or self._chunks or self._marks or not self._outputs.rest():
            await asyncio.sleep(EVERY)  # also if it is woken meanwhile: lines that come together are written together
            return 0.0
        return IDLE

    async def _write(self) -> None:
        try:
            while self._chunks:
                batch = self._batch()
                await self._send(batch)
                del self._chunks[: len(batch)]
                self._waiting_bytes -= sum(len(chunk.lines) for chunk in batch)
            if self._marks:
                await self._write_marks()
            self._failing.over()
        except DetentError as error:
            if self._failing.note(str(error)):
                log.warning("lines of runs are not written yet", error=str(error), chunks=len(self._chunks))
        else:
            self._outputs.full = False
            self._report_left_out()

    async def _write_marks(self) -> None:
        """What comes meanwhile waits for the next time."""
        marks, self._marks = self._marks, {}

        async def alone(mark: ProgressMark, error: Rejected) -> None:
            log.warning("the progress of a run could not be stored", run_id=mark.run_id, error=str(error))

        try:
            await halve_until_alone(list(marks.values()), self._store.add_progress, alone, (Rejected,))
        except BaseException:
            self._marks = marks | self._marks  # what came meanwhile is newer
            raise

    async def _send(self, batch: list[OutputChunk]) -> None:
        """Of two chunks with the same key, the later one replaces the other: a statement takes only one of them."""
        latest = {(chunk.run_id, chunk.token, chunk.part): chunk for chunk in batch}

        async def alone(chunk: OutputChunk, error: Rejected) -> None:
            log.warning("lines of a run could not be stored", run_id=chunk.run_id, error=str(error))

        await halve_until_alone(list(latest.values()), self._store.add, alone, (Rejected,))

    def _batch(self) -> list[OutputChunk]:
        batch: list[OutputChunk] = []
        size = 0
        for chunk in self._chunks[:BATCH]:
            size += len(chunk.lines)
            if size > BATCH_BYTES and batch:
                break
            batch.append(chunk)
        return batch

    def _report_left_out(self) -> None:
        if self._left_out:
            log.warning("lines of runs were left out: the database took none", chunks=self._left_out)
            self._left_out = 0

    async def close(self) -> None:
        """Write what is there, within a moment."""
        await self.loop.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                self._take(self._outputs.collect())
                await self._write()
