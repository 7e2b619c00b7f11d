import asyncio

from temporalio import activity
from temporalio.testing import ActivityEnvironment


@activity.defn
async def report(kind: str) -> list[object]:
    return [activity.info().activity_id, activity.info().attempt, kind]


print(asyncio.run(ActivityEnvironment().run(report, "daily")))
print("yes: activity.info() and workflow.info(), typed, from the context of the call")
