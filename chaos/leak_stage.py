"""Two nodes with the jobs of `chaos/secret_leaks.py`, their database and target, and the workers that pull."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from chaos.harness import Scene
from chaos.leak_jobs import APP, PROVIDED, STORED, Plan, Planted, plans
from chaos.leak_search import Searched
from detent.client import Client, JsonClient
from detent.client.json_client import JsonListing
from detent.contract.key import KeyScope
from detent.contract.pull import ClaimedRun
from detent.errors import DetentError, OwnershipLost
from detent.runtime.envelope import generate_master_key, generate_signing_key
from detent.store import Database, Store
from detent.store.db import connect
from detent.store.embedded import EmbeddedServer
from detent.store.limits import REQUEST_LIMITS
from tests.secrets.echo import Echo
from tests.support.processes import Node
from tests.support.waiting import until

SCHEDULE = "every 2s"
SCOPES: tuple[KeyScope, ...] = ("admin", "read", "work", "secrets")


class Member(NamedTuple):
    """A node that runs, and its address."""

    node: Node
    url: str


class Stage:
    """Two nodes, the database, the target of the jobs, and everything that must not be seen."""

    def __init__(self, scene: Scene, server: EmbeddedServer, look: Any, echo: Echo, seed: int) -> None:
        self.scene = scene
        self.server = server
        self.look = look
        self.echo = echo
        self.chance = random.Random(seed)
        self.planted = Planted(seed)
        self.plans: dict[str, Plan] = plans(self.planted, echo.url)
        self.keys: dict[str, str] = {}
        self.master_keys = [generate_master_key()]
        self.members: list[Member] = []
        self.claims: list[ClaimedRun] = []
        self.counts = {"key": 0, "signing": 0, "kill": 0, "cut": 0, "search": 0}
        self.searched = Searched()

    @property
    def url(self) -> str:
        return self.members[0].url

    async def ask(self, verb: str, *arguments: Any, **named: Any) -> Any:
        """A request as admin, in a thread: the targets of the jobs answer in this one."""

        def send() -> Any:
            with JsonClient(self.url, self.keys["admin"]) as client:
                answer = getattr(client, verb)(*arguments, **named)
                return answer.page() if isinstance(answer, JsonListing) else answer

        return await asyncio.to_thread(send)

    async def start(self, *keys: str) -> Member:
        """A node with these encryption keys, the newest first."""
        arguments = ("--app", "careless:app", "--allow-shell", "default")
        node = await self.scene.nodes.start("serve", *arguments, secret_key=",".join(keys))
        return Member(node, node.url)

    async def restart(self, *keys: str) -> None:
        """One node after the other, so that one always runs."""
        for number, member in enumerate(self.members):
            member.node.send(signal.SIGTERM)
            code = await member.node.ended()
            assert code == 0, f"{member.node.name} ended with {code}"
            self.members[number] = await self.start(*keys)

    def secrets(self) -> dict[str, str]:
        """What must be nowhere, by name."""
        signing = {f"signing key {number}": key[6:] for number, key in enumerate(self.planted.signing, 1)}
        master = {f"encryption key {number}": key for number, key in enumerate(self.master_keys, 1)}
        return {
            **self.planted.cores,
            **signing,
            **master,
            **{f"API key {name}": key for name, key in self.keys.items()},
        }

    def literals(self) -> dict[str, str]:
        """What must be only where the definitions of jobs are, for keys that may see them."""
        return {"literal": self.planted.literal}


# --- the stage ---


@asynccontextmanager
async def staged(scene: Scene, seed: int) -> AsyncIterator[Stage]:
    folder = scene.nodes.folder
    async with EmbeddedServer(folder / "server", system_dir=folder / "system") as server, Echo() as echo:
        code, said = await scene.nodes.run("db", "migrate", DETENT_DATABASE_URL=server.url)
        assert code == 0, said
        look = await connect(server.url, "detent", REQUEST_LIMITS)  # after an hour, reading all attempts takes a while
        stage = Stage(scene, server, look, echo, seed)
        try:
            await prepare(stage)
            yield stage
        finally:
            await look.close()
            for node in scene.nodes.started:
                node.close()


async def prepare(stage: Stage) -> None:
    folder = stage.scene.nodes.folder
    (folder / "careless.py").write_text(APP)
    (folder / "credentials").mkdir()
    (folder / "credentials" / PROVIDED["file"].removeprefix("file:")).write_text(stage.planted.values["file"] + "\n")
    stage.scene.nodes.variables |= {
        "DETENT_DATABASE_URL": stage.server.url,
        "DETENT_ARCHIVE_URL": str(folder / "archive"),
        "DETENT_SECRET_ENVIRONMENT": "PLANTED_*",
        "DETENT_SECRET_DIRECTORY": str(folder / "credentials"),
        "DETENT_LOG_LEVEL": "debug",
        "DETENT_LOG_FORMAT": "json",
        "PLANTED_TOKEN": stage.planted.values["variable"],
    }
    async with opened(stage.server.url) as store:
        stage.keys = {scope: (await store.keys.add(scope, tenant=1)).key for scope in SCOPES}
    stage.members = [await stage.start(stage.master_keys[0]) for _ in range(2)]
    await stage.ask("change_tenant", "default", {"allow": ["private"]})
    for name in STORED:
        await stage.ask("set_secret", name, stage.planted.values[name])
    stage.planted.signing.append(generate_signing_key())
    await stage.ask("set_secret", "signing", stage.planted.signing[0])
    await stage.ask("create_jobs", [{**plan.document, "schedule": SCHEDULE} for plan in stage.plans.values()])


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    database = Database(url)
    await database.open()
    try:
        yield Store(database)
    finally:
        await database.close()


async def all_called(stage: Stage) -> None:
    """Every job that is to succeed has a run of a tick from now on that has."""
    began = await stage.look.fetchval("SELECT now()")
    names = [name for name, plan in stage.plans.items() if plan.error is None]

    async def missing() -> list[str]:
        rows = await stage.look.fetch(
            "SELECT DISTINCT j.name FROM run_history h JOIN jobs j USING (job)"
            " WHERE h.status = 1 AND h.scheduled_at > $1",
            began,
        )
        return sorted(set(names) - {row["name"] for row in rows})

    async def none_missing() -> bool:
        await asyncio.sleep(0.3)
        return not await missing()

    await until(none_missing, 120, "a run of every job that succeeds")


# --- workers that pull ---


async def pull(stage: Stage, queue: str, key: str) -> None:
    """Claim and report until the end, at whichever node answers."""
    while True:
        try:
            runs = await claimed(stage, queue, key)
            stage.claims += runs
            await asyncio.gather(*(report(stage, key, run) for run in runs))
        except (DetentError, OSError):
            await asyncio.sleep(0.5)


async def claimed(stage: Stage, queue: str, key: str) -> list[ClaimedRun]:
    def send() -> list[ClaimedRun]:
        with Client(stage.chance.choice(stage.members).url, key) as client:
            return client.claim_runs(queue, f"worker of {queue}", limit=5, lease_seconds=10, wait_seconds=2)

    return await asyncio.to_thread(send)


async def report(stage: Stage, key: str, run: ClaimedRun) -> None:
    """Tell all that the run had, in words that the plan of the job knows."""

    def send() -> None:
        with Client(stage.chance.choice(stage.members).url, key) as client:
            if run.job.endswith("-ok"):
                client.complete_run(run, {"seen": run.payload, "repr": repr(run.payload)})
            else:
                client.fail_run(run, f"the worker says {run.payload}")

    for _ in range(5):
        try:
            return await asyncio.to_thread(send)
        except OwnershipLost:
            return None
        except (DetentError, OSError):
            await asyncio.sleep(0.5)
    return None
