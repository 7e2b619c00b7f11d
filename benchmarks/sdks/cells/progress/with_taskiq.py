import asyncio
from typing import Annotated

from taskiq import TaskiqDepends
from taskiq.depends.progress_tracker import ProgressTracker, TaskState
from taskiq_setup import broker, worker


@broker.task
async def import_orders(progress: Annotated[ProgressTracker[float], TaskiqDepends()]) -> None:
    await progress.set_progress(TaskState.STARTED, 0.4)
    await asyncio.sleep(2)


async def main() -> None:
    async with worker():
        sent = await import_orders.kiq()
        while (seen := await sent.get_progress()) is None:
            await asyncio.sleep(0.05)
        print(seen)
        assert seen.meta == 0.4


asyncio.run(main())
print("yes: ProgressTracker, with a value of your own")
