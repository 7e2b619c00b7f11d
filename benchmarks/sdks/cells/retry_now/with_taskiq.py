import asyncio
from typing import Annotated

from taskiq import Context, TaskiqDepends
from taskiq.exceptions import NoResultError
from taskiq_setup import broker, worker

calls = []


@broker.task
async def busy(context: Annotated[Context, TaskiqDepends()]) -> None:
    calls.append("busy")
    if len(calls) < 3:
        await context.requeue()  # at once: it takes no delay


@broker.task
async def pointless(context: Annotated[Context, TaskiqDepends()]) -> None:
    calls.append("pointless")
    context.reject()


async def main() -> None:
    async with worker():
        await busy.kiq()
        sent = await pointless.kiq()
        await asyncio.sleep(3)
        print(calls, await sent.is_ready(), NoResultError.__name__)


asyncio.run(main())
assert calls.count("busy") >= 2 and calls.count("pointless") == 1
print("partly: context.requeue() and context.reject(); no delay, and no reason is kept")
