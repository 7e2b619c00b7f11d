import asyncio

from temporalio import activity
from temporalio.testing import ActivityEnvironment

ended = []


@activity.defn
async def wait() -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        ended.append("cancelled")
        raise


async def main() -> None:
    environment = ActivityEnvironment()
    running = asyncio.create_task(environment.run(wait))
    await asyncio.sleep(0.1)
    environment.cancel()
    await asyncio.wait([running])


asyncio.run(main())
print(ended)
assert ended == ["cancelled"]
print("yes: activities hear of it at their next heartbeat; the server was not run")
