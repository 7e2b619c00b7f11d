"""Random sequences of what happens to on-demand runs: enqueue, claim, fail, cancel, pause, delete, rescue, redrive.

After every step the backlog, the live runs and the history contain what the model says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from detent.domain.identity import ON_DEMAND, RunKey, decode_run_id
from detent.domain.run import Claim
from detent.domain.states import CODES
from detent.store import sql
from detent.store.tasks import TaskHead, enqueue
from tests.stateful.run_machine import NOW, RunMachine, chosen, key_of, nodes, opened, profile
from tests.stateful.task_model import PRIORITY, Document, Task, TaskModel, in_order, keys_of
from tests.support.factories import add_job, add_task

TIME_OF_SERIAL = f"timestamptz '2020-01-01Z' + (serial - {ON_DEMAND}) * interval '1 s'"
EMPTY = """
DELETE FROM live_runs; DELETE FROM backlog; DELETE FROM unique_keys; DELETE FROM key_places; DELETE FROM key_rates;
DELETE FROM run_history; DELETE FROM attempts; DELETE FROM nodes; UPDATE jobs SET status = 'active';
"""
# In the order of their serials: runs that are due at the same time would be taken in any order, and a sequence of steps
# would not give the same result twice.
IN_ORDER = f"""
UPDATE backlog SET not_before = {TIME_OF_SERIAL} WHERE not_before <= now() AND not_before <> {TIME_OF_SERIAL};
UPDATE live_runs SET not_before = {TIME_OF_SERIAL} WHERE owner IS NULL AND not_before <> {TIME_OF_SERIAL};
"""
LATER = f"""
UPDATE backlog SET not_before = {TIME_OF_SERIAL} WHERE not_before > now();
UPDATE unique_keys SET until = now() - interval '1 s' WHERE until > now();
"""
LIVE = "SELECT *, started_at IS NOT NULL AS started, coalesce(lost_alone, 0) AS lost FROM live_runs ORDER BY serial"
WAITING = "SELECT *, not_before > now() AS delayed, coalesce(lost_alone, 0) AS lost FROM backlog"
MANY = 1000
KINDS = (Task(), Task(limit=2), Task(once=True), Task(lanes=2))

documents = st.builds(
    Document,
    unique=st.sampled_from([None, None, "a", "b"]),
    period=st.booleans(),
    concurrency=st.sampled_from([None, None, "x", "y"]),
    delayed=st.sampled_from([False, False, False, True]),
    priority=st.sampled_from([None, None, -100, 100]),
)


class TaskMachine(RunMachine):
    model: TaskModel
    jobs: ClassVar[list[int]]
    queue: ClassVar[int]

    @initialize(runs=st.lists(documents, min_size=4, max_size=8))
    def begin(self, runs: list[Document]) -> None:
        self.run(self.look.execute(EMPTY))
        tasks = {job: Task(kind.limit, kind.once, kind.lanes) for job, kind in zip(self.jobs, KINDS, strict=True)}
        self.model = TaskModel({}, queue=self.queue, tasks=tasks)
        for node in (1, 2):
            self.join(node)
        for number, each in enumerate(runs):
            self.enqueue(number, [each])

    # --- enqueue ---

    @rule(number=chosen, runs=st.lists(documents, min_size=1, max_size=4))
    def enqueue(self, number: int, runs: list[Document]) -> None:
        job = self.pick(self.jobs, number)
        if self.model.tasks[job].lanes is not None:  # its runs wait for lanes, and not for places of a key
            runs = [Document(each.unique, each.period, None, each.delayed, each.priority) for each in runs]
        found = self.run(enqueue(self.look, job, json.dumps([_json(each) for each in runs])))
        keys = [decode_run_id(each.id) or RunKey(0, each.scheduled_at) for each in found]
        expected = self.model.enqueue(job, runs, keys)
        assert [(each.id, each.created, each.status) for each in found] == expected

    @rule(number=chosen, node=nodes, runs=st.lists(documents, min_size=1, max_size=4))
    def enqueue_and_claim(self, number: int, node: int, runs: list[Document]) -> None:
        self.enqueue(number, runs)
        self.claim(node, number, 4)
        self.claim_keyed(node)

    @rule(number=chosen, unique=st.sampled_from([None, "a"]))
    def withdraw(self, number: int, unique: str | None) -> None:
        """An enqueue whose transaction is rolled back."""
        self.run(self._withdraw(self.pick(self.jobs, number), json.dumps([_json(Document(unique))])))

    async def _withdraw(self, job: int, runs: str) -> None:
        transaction = self.look.transaction()
        await transaction.start()
        await enqueue(self.look, job, runs)
        await transaction.rollback()

    # --- claims ---

    def heads(self, *, laned: bool, keyed: bool = False) -> list[TaskHead]:
        heads = self.run(self.store.tasks.heads([self.queue]))
        assert {(head.job, head.keyed, head.priority) for head in heads} == self.model.heads()
        return [head for head in heads if head.laned is laned and head.keyed is keyed]

    @precondition(lambda self: self.model.waiting)
    @rule(node=nodes, number=chosen, limit=st.integers(1, 4))
    def claim(self, node: int, number: int, limit: int) -> None:
        """Some of one task: the order of tasks is random. Its heads are remembered from a time when it was not
        paused."""
        job = self.pick(self.jobs[:-1], number)
        heads = [TaskHead(job, self.queue, False, priority, NOW, False) for priority in (-100, PRIORITY, 100)]
        ready = [run for run in self.model.ready(keyed=False) if run.key.job == job] if self.model.alive(node) else []
        claims = self.run(self.store.tasks.claim(node, 1, heads, limit)).runs
        assert [claim.key for claim in claims] == keys_of(in_order(ready)[:limit])
        self.granted(node, claims)

    @precondition(lambda self: self.model.keyed())
    @rule(node=nodes)
    def claim_keyed(self, node: int) -> None:
        """All that are ready: as many of each key as have places, and the rest is parked."""
        heads = self.heads(laned=False, keyed=True)
        if not heads:
            return
        seated = self.model.seat() if self.model.alive(node) else []
        claims = self.run(self.store.tasks.claim(node, 1, heads, MANY)).runs
        assert [claim.key for claim in claims] == keys_of(seated)
        self.granted(node, claims)

    @precondition(lambda self: self.model.waiting)
    @rule(keyed=st.booleans())
    def release(self, keyed: bool) -> None:
        """Make all that are ready pending."""
        heads = self.heads(laned=False, keyed=keyed)
        if not heads:
            return
        released = self.model.seat() if keyed else self.model.ready(keyed=False)
        assert self.run(self.store.tasks.release(heads)).counts.total() == len(released)
        for run in released:
            self.model.take(run.key, None)

    @precondition(lambda self: self.model.parked())
    @rule(node=nodes, claims=st.booleans())
    def use_free_places(self, node: int, claims: bool) -> None:
        """Runs that wait for a place that is free now are claimed, or only made ready."""
        keys = sorted(self.model.parked())
        unparked = self.model.unpark()
        if not claims:
            assert self.run(self.store.tasks.unpark(keys)) == {run.key.job for run in unparked}
            return
        starts = [run for run in unparked if self.model.alive(node) and self.model.starts(run.key.job)]
        got, rest = self.run(self.store.tasks.claim_parked(node, 1, keys, [self.queue], MANY))
        assert [claim.key for claim in got] == keys_of(in_order(starts))
        assert rest == {run.key.job for run in unparked if run not in starts}
        self.granted(node, got)

    @precondition(lambda self: self.model.pending())
    @rule(node=nodes, limit=st.integers(1, 4))
    def claim_pending(self, node: int, limit: int) -> None:
        """What was released, given back or rescued."""
        pending = self.model.pending() if self.model.alive(node) else []
        claims = self.run(self.store.live_runs.claim(node, 1, [self.queue], limit))
        assert [claim.key for claim in claims] == keys_of(in_order(pending)[:limit])
        for claim in claims:
            assert claim == self.model.claim(node, claim.key)

    @precondition(lambda self: any(key.job == self.jobs[-1] for key in self.model.waiting))
    @rule()
    def release_laned(self) -> None:
        """Runs of the job with a schedule take its lanes, the highest free ones first."""
        heads = [head for head in self.heads(laned=True) if head.wait <= 0]
        if not heads:
            return
        ready = in_order(self.model.laned(self.jobs[-1]))
        taken = list(zip(ready, self.model.free_lanes(self.jobs[-1]), strict=False))
        assert self.run(self.store.tasks.release_laned(heads)) is bool(taken)
        for run, lane in taken:
            self.model.take(run.key, None, lane)

    def granted(self, node: int, claims: Sequence[Claim]) -> None:
        for claim in claims:
            assert claim == self.model.claim_of(self.model.take(claim.key, node))

    # --- ends ---

    @precondition(lambda self: self.model.live or self.model.waiting or self.model.ended)
    @rule(number=chosen)
    def cancel(self, number: int) -> None:
        unfinished = [*self.model.live, *self.model.waiting]
        key = self.pick(unfinished if unfinished and number % 4 else [*unfinished, *self.model.ended], number)
        expected = {} if key in self.model.ended else {key: self.model.cancel(key)}
        assert self.run(self.store.live_runs.cancel([key])) == expected

    @rule(number=chosen, status=st.sampled_from(["active", "active", "paused"]))
    def pause_or_resume(self, number: int, status: str) -> None:
        job = self.pick(self.jobs, number)
        self.model.tasks[job].status = status
        self.run(self.look.execute("UPDATE jobs SET status = $2 WHERE job = $1", job, status))

    @rule(number=chosen)
    def delete(self, number: int) -> None:
        job = self.pick(self.jobs, number)
        self.model.delete(job)
        self.model.tasks[job].status = "active"
        self.run(self._delete(job))

    async def _delete(self, job: int) -> None:
        await self.look.execute("UPDATE jobs SET status = 'deleted' WHERE job = $1", job)
        await self.look.fetch(sql.run.END_OF_DELETED_JOBS.text, [job])
        while await self.store.tasks.end_of_deleted_jobs():
            pass
        await self.look.execute("UPDATE jobs SET status = 'active' WHERE job = $1", job)
        await self.look.execute("UPDATE cursors SET ended = false WHERE job = $1", job)

    @precondition(lambda self: self.model.dead())
    @rule(number=chosen)
    def redrive(self, number: int) -> None:
        dead = self.model.dead()
        keys = dead if number % 2 else [self.pick(dead, number)]
        others = [key for key in self.model.ended if key not in dead][:1]
        rows = self.run(self.look.fetch("SELECT * FROM run_history"))
        done = self.run(self.store.reruns.redrive([*keys, *others]))
        assert set(done.runs) == set(keys)
        self.model.redrive(keys, {key_of(row): row["key"] for row in rows})

    # --- time ---

    @precondition(lambda self: any(run.delayed for run in self.model.waiting.values()))
    @rule()
    def wait(self) -> None:
        """What is delayed is due, and periods of unique keys have passed. Keys that are no longer held are deleted,
        which changes nothing else."""
        self.run(self.look.execute(LATER))
        self.run(self._purge())
        for run in self.model.waiting.values():
            run.delayed = False
        for holder in self.model.holders.values():
            holder.period = False

    async def _purge(self) -> None:
        async for _ in self.store.tasks.purge_keys():
            pass

    async def _compare(self) -> None:
        live = await self._rows(LIVE, "lane token owner attempt crashes lost started cancel priority key")
        assert live == {key: (*run.row(), run.priority, run.concurrency) for key, run in self.model.live.items()}
        waiting = await self._rows(WAITING, "token attempt crashes lost priority key delayed parked")
        assert waiting == {key: run.waiting_row() for key, run in self.model.waiting.items()}
        past = await self._rows("SELECT * FROM run_history", "status token")
        assert past == {key: (CODES[status], token) for key, (status, token) in self.model.ended.items()}
        await self.look.execute(IN_ORDER)

    async def _rows(self, query: str, names: str) -> dict[RunKey, tuple[object, ...]]:
        rows = await self.look.fetch(query)
        found = {key_of(row): tuple(row[name] for name in names.split()) for row in rows}
        assert len(found) == len(rows), "a run is there twice"
        return found


def _json(document: Document) -> dict[str, Any]:
    fields = {
        "unique_key": document.unique,
        "unique_for_seconds": 3600 if document.period and document.unique else None,
        "concurrency_key": document.concurrency,
        "delay_seconds": 3600 if document.delayed else None,
        "priority": document.priority,
    }
    return {name: value for name, value in fields.items() if value is not None}


@pytest.fixture
def machine(database_url: str) -> Iterator[type[TaskMachine]]:
    async def prepare(look: Any) -> None:
        TaskMachine.jobs = [
            await add_task(look, name="plain"),
            await add_task(look, name="limited", key_limit=2),
            await add_task(look, name="once"),
            await add_job(look, name="scheduled", lanes=2),
        ]
        await look.execute("UPDATE cursors SET once = true WHERE job = $1", TaskMachine.jobs[2])
        TaskMachine.queue = await look.fetchval("SELECT queue FROM cursors WHERE job = $1", TaskMachine.jobs[0])

    with opened(TaskMachine, database_url, prepare):
        yield TaskMachine


def test_any_sequence_of_verbs_does_to_on_demand_runs_what_the_model_says(machine: type[TaskMachine]) -> None:
    run_state_machine_as_test(machine, settings=profile(25, 40))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_long_sequences_do_to_on_demand_runs_what_the_model_says(machine: type[TaskMachine]) -> None:
    run_state_machine_as_test(machine, settings=profile(1000, 100))
