import asyncio

from temporalio import activity
from temporalio.testing import ActivityEnvironment

seen = []


@activity.defn
async def import_orders() -> None:
    activity.heartbeat(0.4, "importing")


environment = ActivityEnvironment()
environment.on_heartbeat = lambda *details: seen.append(details)
asyncio.run(environment.run(import_orders))
print(seen)
assert seen == [(0.4, "importing")]
print("yes: heartbeat details, and queries of a workflow; the server was not run")
