"""Every order in which a few actors' statements can happen, played on a real server.

An actor is a script on a connection of its own. Before each statement the script waits for its turn; a transaction it
opened stays open while others take theirs. The director gives turns one at a time: after each it waits until every
statement under way has either answered or is blocked, which it asks the server (`pg_blocking_pids`), because a slow
statement that is taken for a blocked one makes one explore orders that never happened. A blocked statement goes on by
itself when what it waits for is released, as part of the step that released it.

`explore` plays all orders: each performance records who could have moved at each point, and the moves not taken are
played next, from the start and on fresh rows. BEGIN is not a step of its own: at READ COMMITTED it takes no snapshot
and no lock, so moving it changes nothing but the number of orders.

One actor may be killed after its n-th statement was sent, at any later point of the order, also while that statement
is blocked: the server then ends its session and undoes what had not committed.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache, partial
from typing import Any, NamedTuple

import asyncpg

from detent.store.connection_settings import session_settings
from detent.store.statement import STATEMENTS

# How long a statement may take before the server is asked whether it is blocked. It decides nothing.
PATIENCE = 0.002
STATEMENT_LIMIT = "20s"
VACUUM_EVERY = 100
MAX_TRIES = 20

BLOCKED = "SELECT count(*) FROM unnest($1::integer[]) AS pid WHERE cardinality(pg_blocking_pids(pid)) > 0"
GONE = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)"

Rows = list[Mapping[str, Any]]
Script = Callable[["Actor", Any], Awaitable[None]]


class State(Enum):
    WAITING = auto()  # for a turn
    RUNNING = auto()  # a statement is under way, perhaps blocked
    DONE = auto()


class Kill(NamedTuple):
    """End the actor of this number after it has sent this many statements."""

    actor: int
    after: int


class Actor:
    """One connection, and the statements a script sends over it."""

    def __init__(self, name: str, connection: Any, texts: Mapping[str, str]) -> None:
        self.name = name
        self.connection = connection
        self.pid: int = connection.get_server_pid()
        self.state = State.RUNNING
        self.steps = 0
        self.killed = False
        self.changed = asyncio.Event()
        self._texts = texts
        self._granted = asyncio.Event()
        self._to_begin: str | None = None

    async def run(self, name: str, *arguments: object) -> Rows:
        """The named statement: alone in its transaction, or another one in the transaction that is open."""
        await self._turn()
        if self._to_begin is not None:
            begin, self._to_begin = self._to_begin, None
            await self.connection.execute(begin)
        rows: Rows = await self.connection.fetch(self._text(name), *arguments)
        return rows

    async def fetch(self, text: str, *arguments: object) -> Rows:
        """As `run`, for the product's own code, which is given this actor as its connection."""
        return await self.run(_names()[text], *arguments)

    async def open(self, name: str, *arguments: object) -> Rows:
        """Begin a transaction and run the named statement in it; the transaction stays open."""
        self.begin()
        return await self.run(name, *arguments)

    def begin(self, isolation: str = "READ COMMITTED") -> None:
        """The next statement begins a transaction, which stays open."""
        self._to_begin = f"BEGIN ISOLATION LEVEL {isolation}"

    async def commit(self) -> None:
        await self._turn()
        await self.connection.execute("COMMIT")

    async def rollback(self) -> None:
        await self._turn()
        await self.connection.execute("ROLLBACK")

    def grant(self) -> None:
        assert self.state is State.WAITING
        self.state = State.RUNNING
        self.steps += 1
        self._granted.set()

    def finish(self) -> None:
        self.state = State.DONE
        self.changed.set()

    def _text(self, name: str) -> str:
        return self._texts[name] if name in self._texts else STATEMENTS[name].text

    async def _turn(self) -> None:
        self.state = State.WAITING
        self.changed.set()
        await self._granted.wait()
        self._granted.clear()


@cache
def _names() -> dict[str, str]:
    return {statement.text: name for name, statement in STATEMENTS.items()}


class Choice(NamedTuple):
    """One point of an order: who moved, and who could have."""

    taken: int
    enabled: tuple[int, ...]


@dataclass
class Performance:
    """One order that was played, and what was wrong with it."""

    order: str
    choices: list[Choice]
    killed: bool
    diverged: bool
    steps: list[int]
    violations: list[str]


@dataclass
class Report:
    schedules: int = 0
    violated: int = 0
    steps: list[int] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)

    def add(self, performance: Performance) -> None:
        self.schedules += 1
        self.steps = [max(pair) for pair in itertools.zip_longest(self.steps, performance.steps, fillvalue=0)]
        if performance.violations:
            self.violated += 1
            self.examples.append(f"{performance.order}: {'; '.join(performance.violations)}")

    def include(self, other: Report) -> None:
        self.schedules += other.schedules
        self.violated += other.violated
        self.examples += other.examples

    def __str__(self) -> str:
        lines = [f"{self.schedules} schedules, {self.violated} violated"]
        return "\n  ".join(lines + self.examples[:5])


class Play:
    """A scenario as the harness sees it: fresh rows, scripts, and a judgement of what they left behind."""

    actors: Sequence[tuple[str, Script]]
    texts: Mapping[str, str]

    async def reset(self, admin: Any) -> Any:
        """Fresh rows; returns the world that is passed to the scripts."""
        raise AssertionError("a play says how it begins")

    async def watch(self, admin: Any) -> list[str]:
        """What is wrong with what has committed so far. Asked after every step."""
        return []

    async def judge(self, admin: Any, world: Any) -> list[str]:
        """Recover as the survivors would, then say what is wrong."""
        raise AssertionError("a play says how it ends")


class Stage:
    """The connections that all performances of a test share."""

    admin: Any
    monitor: Any

    def __init__(self, url: str) -> None:
        self._url = url
        self._spare: list[Any] = []
        self._played = 0

    @staticmethod
    @asynccontextmanager
    async def at(url: str) -> AsyncIterator[Stage]:
        stage = Stage(url)
        stage.admin, stage.monitor = await stage.connect(), await stage.connect()
        try:
            yield stage
        finally:
            for connection in (stage.admin, stage.monitor, *stage._spare):
                connection.terminate()

    async def connect(self) -> Any:
        # The product's own settings, but for the limits: here a wait ends when the order says so.
        settings = session_settings("detent") | {"lock_timeout": "0", "statement_timeout": STATEMENT_LIMIT}
        settings["idle_in_transaction_session_timeout"] = "0"
        return await asyncpg.connect(self._url, server_settings=settings)

    async def perform(
        self,
        play: Play,
        prefix: Sequence[int] = (),
        kill: Kill | None = None,
        chance: random.Random | None = None,
    ) -> Performance:
        """Play one order: as `prefix` says, then the first actor that can move, or a random one if `chance` is
        given."""
        self._played += 1
        if self._played % VACUUM_EVERY == 0:
            await self.admin.execute("VACUUM")
        world = await play.reset(self.admin)
        connections = [self._spare.pop() if self._spare else await self.connect() for _ in play.actors]
        actors = [Actor(name, c, play.texts) for (name, _), c in zip(play.actors, connections, strict=True)]
        errors: list[str] = []
        scripts = [script for _, script in play.actors]
        tasks = [
            asyncio.create_task(_act(actor, script, world, errors))
            for actor, script in zip(actors, scripts, strict=True)
        ]
        direction = Direction(self.monitor, actors, kill, partial(play.watch, self.admin))
        choices = await direction.through(prefix, chance)
        for actor, task in zip(actors, tasks, strict=True):
            if actor.killed:
                actor.connection.terminate()
                task.cancel()
            else:
                self._spare.append(actor.connection)
        await asyncio.gather(*tasks, return_exceptions=True)
        violations = errors + list(direction.seen) + await play.judge(self.admin, world)
        return Performance(
            direction.order,
            choices,
            any(actor.killed for actor in actors),
            direction.diverged,
            [actor.steps for actor in actors],
            violations,
        )


async def _act(actor: Actor, script: Script, world: Any, errors: list[str]) -> None:
    """Play a script to its end. An error is none of the protocol's answers, so it is a violation."""
    try:
        await script(actor, world)
    except Exception as error:
        if not actor.killed:
            errors.append(f"{actor.name}: {type(error).__name__}: {error}")
            await actor.connection.execute("ROLLBACK" if actor.connection.is_in_transaction() else "SELECT")
    finally:
        actor.finish()


class Direction:
    """The turns of one performance."""

    def __init__(
        self, monitor: Any, actors: Sequence[Actor], kill: Kill | None, watch: Callable[[], Awaitable[list[str]]]
    ) -> None:
        self._monitor = monitor
        self._actors = actors
        self._kill = kill
        self._watch = watch
        self.seen: dict[str, str] = {}  # what was wrong after a step, and the order until then
        self.order = ""
        self.diverged = False

    async def through(self, prefix: Sequence[int], chance: random.Random | None) -> list[Choice]:
        await self._settled()
        choices: list[Choice] = []
        while enabled := self._enabled():
            taken = chance.choice(enabled) if chance else enabled[0]
            if len(choices) < len(prefix) and not self.diverged:
                self.diverged = prefix[len(choices)] not in enabled
                taken = taken if self.diverged else prefix[len(choices)]
            choices.append(Choice(taken, enabled))
            await self._move(taken)
        stuck = [actor.name for actor in self._actors if actor.state is not State.DONE and not actor.killed]
        if stuck:
            raise AssertionError(f"{', '.join(stuck)} cannot go on after {self.order}: the script left a lock behind")
        return choices

    def _enabled(self) -> tuple[int, ...]:
        return tuple(
            number
            for number, actor in enumerate(self._actors)
            if not actor.killed
            and (actor.state is State.WAITING or (actor.state is State.RUNNING and self._to_be_killed(number)))
        )

    def _to_be_killed(self, number: int) -> bool:
        return self._kill is not None and self._kill == (number, self._actors[number].steps)

    async def _move(self, number: int) -> None:
        actor = self._actors[number]
        if self._to_be_killed(number):
            self.order += f"{actor.name}† "
            await self._end(actor)
        else:
            actor.grant()
            self.order += f"{actor.name}{actor.steps} "
            await self._patiently(actor)
        await self._settled()
        for fault in await self._watch():
            self.seen.setdefault(fault, self.order)

    async def _end(self, actor: Actor) -> None:
        actor.killed = True
        await self._monitor.execute(f"SELECT pg_terminate_backend({actor.pid})")
        # Its locks are gone before it is gone from the list, and its script has heard of it when the driver has.
        while not await self._monitor.fetchval(GONE, actor.pid) or actor.state is State.RUNNING:
            await asyncio.sleep(0)

    async def _patiently(self, actor: Actor) -> None:
        actor.changed.clear()
        if actor.state is not State.RUNNING:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await actor.changed.wait()
        except TimeoutError:
            pass

    async def _settled(self) -> None:
        """Until every statement under way is blocked, by the server's word."""
        while running := [a for a in self._actors if a.state is State.RUNNING and not a.killed]:
            blocked = await self._monitor.fetchval(BLOCKED, [actor.pid for actor in running])
            if blocked == len(running) and all(actor.state is State.RUNNING for actor in running):
                return
            await asyncio.sleep(0)


async def explore(stage: Stage, play: Play, kill: Kill | None = None, *, to_the_end: bool = True) -> Report:
    """Every order of the play's statements; with a kill, those in which it happened. Without
    `to_the_end` it stops at the first order that breaks a promise."""
    report = Report()
    pending: list[tuple[int, ...]] = [()]
    while pending:
        prefix = pending.pop()
        performance = await stage.perform(play, prefix, kill)
        # Of two statements that wait for the same row, the server now and then lets the later one go first; then the
        # order that was asked for did not come about, and is asked for again.
        for _ in range(MAX_TRIES):
            if not performance.diverged:
                break
            performance = await stage.perform(play, prefix, kill)
        taken = tuple(choice.taken for choice in performance.choices)
        for position in range(len(prefix), len(taken)):
            pending += [(*taken[:position], other) for other in performance.choices[position].enabled[1:]]
        if kill is None or performance.killed:
            report.add(performance)
        if report.violated and not to_the_end:
            break
    return report


async def explore_with_kills(stage: Stage, play: Play) -> Report:
    """Every order without a kill, and every order with each actor killed after each of its statements."""
    report = await explore(stage, play)
    for number, steps in enumerate(list(report.steps)):
        for after in range(1, steps):
            report.include(await explore(stage, play, Kill(number, after)))
    return report


async def sample(stage: Stage, play: Play, steps: Sequence[int], count: int, seed: int = 7) -> Report:
    """Some random orders with a kill; the seed makes them the same every time."""
    chance = random.Random(seed)
    kills = [Kill(number, after) for number, most in enumerate(steps) for after in range(1, most)]
    report = Report()
    for _ in range(count):
        performance = await stage.perform(play, kill=chance.choice(kills), chance=chance)
        report.add(performance)
    return report
