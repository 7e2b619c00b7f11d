import asyncio
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment


@activity.defn
async def busy() -> None:
    raise ApplicationError("the bank is busy", next_retry_delay=timedelta(seconds=30))


@activity.defn
async def pointless() -> None:
    raise ApplicationError("no such order", non_retryable=True)


for function in (busy, pointless):
    try:
        asyncio.run(ActivityEnvironment().run(function))
    except ApplicationError as error:
        print(error, error.next_retry_delay, error.non_retryable)
print("partly: a retry after 30 s; giving up is a failure, not a quiet end")
