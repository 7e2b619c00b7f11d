import asyncio
from typing import Annotated

from taskiq import Context, TaskiqDepends, TaskiqEvents, TaskiqState
from taskiq_setup import broker, worker

seen = []


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def connect(state: TaskiqState) -> None:
    state.pool = "pool"


async def session(context: Annotated[Context, TaskiqDepends()]):
    seen.append("open")
    yield f"session of {context.state.pool}"
    seen.append("close")


@broker.task
async def use(session: Annotated[str, TaskiqDepends(session)]) -> str:
    return session


async def main() -> None:
    async with worker():
        print((await (await use.kiq()).wait_result(timeout=20)).return_value)


asyncio.run(main())
print(seen)
assert seen == ["open", "close"]
print("yes: TaskiqDepends per run, with clean-up, and a state of the worker; also FastAPI's own with taskiq-fastapi")
