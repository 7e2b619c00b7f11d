"""The processes of a cluster, each in a place with a name (`s1`, `w2`): whoever dies there is replaced there."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from processes import Node, environment

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
        """A new process in this place; `variables` are its alone, as in DETENT_FAILPOINTS."""
        return await self.begin(**variables).ready()

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
        environ = environment(self.folder, **{**self.variables, **variables})
        node = Node(self.folder, f"command.{len(self._commands) + 1}", list(arguments), environ)
        self._commands.append(node)
        code = await node.ended()
        assert code == 0, f"detent {' '.join(arguments)} ended with code {code}:\n{node.text}"
        return node.text

    @property
    def processes(self) -> list[Node]:
        return [node for member in self.members.values() for node in member.processes]

    @property
    def present(self) -> list[Member]:
        return [member for member in self.members.values() if member.processes and not member.left]

    @property
    def gone(self) -> list[str]:
        """Places whose process has ended although nobody ended it."""
        return [member.node.name for member in self.present if member.node.process.poll() is not None]

    def logs(self) -> dict[str, str]:
        return {node.name: node.text for node in self.processes}

    def close(self) -> None:
        for node in self.processes:
            node.close()
