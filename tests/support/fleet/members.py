"""The processes of a cluster, each in a place with a name (`s1`, `w2`): a process that dies is replaced there."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.support.processes import START_SECONDS, Node, environment
from tests.support.waiting import until

UNREACHABLE = 7  # what a process ends with that finds no database
TRIES = 60
PAUSE_SECONDS = 0.5
ROLES = {"s": "scheduler", "w": "worker", "n": "serve", "a": "api"}


class Member:
    """One place, and the processes that have been in it, one after another."""

    def __init__(self, fleet: Fleet, name: str, variables: Mapping[str, str]) -> None:
        self.name = name
        self.role = ROLES[name[0]]
        self.processes: list[Node] = []
        self.left = False
        self.variables = dict(variables)
        self._fleet = fleet

    @property
    def node(self) -> Node:
        return self.processes[-1]

    async def start(self, **variables: str) -> Node:
        """A new process in this place; `variables` are set only for it, such as DETENT_FAILPOINTS."""
        return await self._launch(lambda node: node.is_ready, variables)

    async def start_to_stop(self, failpoint: str) -> Node:
        """One that stops itself at a step; returned once it has."""
        return await self._launch(lambda node: node.is_stopped, {"DETENT_FAILPOINTS": failpoint})

    async def start_to_die(self, failpoint: str) -> Node:
        """One that kills itself at a step; returned once it has."""
        killed = -signal.SIGKILL
        return await self._launch(lambda node: node.process.poll() == killed, {"DETENT_FAILPOINTS": failpoint})

    async def _launch(self, done: Callable[[Node], bool], variables: Mapping[str, str]) -> Node:
        """As a supervisor does: a process that finds no database ends with a word, and is started again."""
        for _ in range(TRIES):
            node = self.begin(**variables)
            await until(partial(_done_or_over, node, done), START_SECONDS, f"{node.name} to start")
            if done(node):
                return node
            assert node.process.returncode == UNREACHABLE, (
                f"{node.name} ended with code {node.process.returncode}:\n{node.text}"
            )
            await asyncio.sleep(PAUSE_SECONDS)
        raise AssertionError(f"{self.name} could not be started {TRIES} times: {self.node.text}")

    def begin(self, **variables: str) -> Node:
        environ = environment(self._fleet.folder, **{**self._fleet.variables, **self.variables, **variables})
        ports = ["--port", "0"] if self.role in ("serve", "api") else []
        name = f"{self.name}.{len(self.processes) + 1}"
        self.processes.append(Node(self._fleet.folder, name, [self.role, *ports], environ))
        return self.node

    async def kill(self) -> None:
        await self.node.kill()

    async def end(self) -> int:
        """Politely; its exit code."""
        self.node.send(signal.SIGTERM)
        return await self.node.ended()


def _done_or_over(node: Node, done: Callable[[Node], bool]) -> bool:
    return done(node) or node.process.poll() is not None


class Fleet:
    """All members. None outlives the block; what ended without being told to is remembered."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.variables = variables
        self.members: dict[str, Member] = {}
        self._commands: list[Node] = []

    def add(self, name: str, **variables: str) -> Member:
        member = self.members[name] = Member(self, name, variables)
        return member

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    async def command(self, *arguments: str, **variables: str) -> str:
        """A command of the product that ends by itself: what it printed."""
        code, text = await self.answer(*arguments, **variables)
        assert code == 0, f"detent {' '.join(arguments)} ended with code {code}:\n{text}"
        return text

    async def answer(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """The same where the exit code is what is asked for."""
        environ = environment(self.folder, **{**self.variables, **variables})
        node = Node(self.folder, f"command.{len(self._commands) + 1}", list(arguments), environ)
        self._commands.append(node)
        return await node.ended(), node.text

    @property
    def processes(self) -> list[Node]:
        return [node for member in self.members.values() for node in member.processes]

    @property
    def present(self) -> list[Member]:
        return [member for member in self.members.values() if member.processes and not member.left]

    @property
    def gone(self) -> list[str]:
        """Places whose process has ended although the test did not end it."""
        return [member.node.name for member in self.present if member.node.process.poll() is not None]

    def logs(self) -> dict[str, str]:
        return {node.name: node.text for node in self.processes}

    def close(self) -> None:
        for node in self.processes:
            node.close()
