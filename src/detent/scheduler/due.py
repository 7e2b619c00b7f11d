"""Due ticks that wait for a free statement, in the order in which they are sent: by tenant, priority and time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from detent.store.cursors import Cursor
from detent.worker.queues.book import QueueBook
from detent.worker.queues.rounds import FairLine

BATCH = 1000
# One of this many batches starts with the lowest priority, so that no tick starves.
LOWEST_FIRST_EVERY = 8
# While very many ticks are due, one of this many places is for the tick that came due last: it does not wait for all
# others.
NEWEST_EVERY = 8


_job_of: Callable[[Cursor], int] = attrgetter("job")
_place_of: Callable[[Cursor], tuple[int, int]] = attrgetter("queue", "priority")


class DueTicks:
    def __init__(self, book: QueueBook) -> None:
        self._book = book
        self._cursors: dict[int, Cursor] = {}
        self._order: FairLine[int] = FairLine(book.weight_of)
        self._batches = 0

    def __len__(self) -> int:
        return len(self._cursors)

    def __iter__(self) -> Iterator[Cursor]:
        return iter(self._cursors.values())

    @property
    def tenants(self) -> Collection[int]:
        return self._order.tenants

    def add(self, cursors: Sequence[Cursor]) -> None:
        """A newer cursor of a job replaces one that waits."""
        known = self._cursors
        new = [cursor for cursor in cursors if cursor.job not in known] if known else cursors
        known.update(zip(map(_job_of, cursors), cursors, strict=True))
        self._line_up(new)

    def _line_up(self, cursors: Iterable[Cursor]) -> None:
        for (queue, priority), some in groupby(cursors, _place_of):
            self._order.extend(self._book.tenant_of(queue), list(map(_job_of, some)), priority)

    def discard(self, job: int) -> None:
        self._cursors.pop(job, None)

    def drop(self, partitions: Collection[int]) -> None:
        for job in [job for job, cursor in self._cursors.items() if cursor.partition in partitions]:
            del self._cursors[job]

    def clear(self) -> None:
        self._cursors.clear()
        self._order.clear()

    def first(self) -> Cursor | None:
        """The tick whose turn it is. None also where its job was discarded: `take` passes over that."""
        if self._cursors and not self._order:
            self._line_up_again()
        return self._cursors.get(self._order.first()) if self._order else None

    def take(self, most: int, in_flight: dict[int, Cursor], tenants: Collection[int] | None = None) -> list[Cursor]:
        """The next batch, which is in flight from now on: of all tenants, or of these. By priority, except for one of
        several batches. A job is in one batch at a time: its next tick is sent only after the reply to the one
        before."""
        if tenants is None:
            return self._take(most, in_flight)
        with self._order.only(tenants):
            return self._take(most, in_flight)

    def _take(self, most: int, in_flight: dict[int, Cursor]) -> list[Cursor]:
        batch: list[Cursor] = []
        not_yet: list[int] = []
        self._batches += 1
        lowest_first = self._batches % LOWEST_FIRST_EVERY == 0
        newest_every = NEWEST_EVERY if len(self._cursors) > BATCH else BATCH + 1
        while self._order and len(batch) < most:
            for job in self._order.take(most - len(batch), lowest_first, newest_every):
                if job in in_flight:
                    not_yet.append(job)
                elif job in self._cursors:
                    cursor = in_flight[job] = self._cursors.pop(job)
                    batch.append(cursor)
        self._line_up(in_flight[job] for job in not_yet)
        return batch

    def _line_up_again(self) -> None:
        """Ticks that left the line without being sent, for whatever reason: they are due."""
        self._line_up(self._cursors.values())
