import asyncio

from taskiq import TaskiqEvents, TaskiqState
from taskiq_setup import broker, worker

seen = []


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def start(state: TaskiqState) -> None:
    seen.append("start")


@broker.on_event(TaskiqEvents.WORKER_SHUTDOWN)
async def stop(state: TaskiqState) -> None:
    seen.append("stop")


async def main() -> None:
    async with worker():
        pass


asyncio.run(main())
print(seen)
assert seen == ["start", "stop"]
print("yes: events of workers and of clients")
