"""A worker in Python that pulls its work over the API, for machines that cannot reach the database.

    python pull_worker.py mail

It runs the function `send` of the queue's jobs, whose target is {"type": "python", "function": "send"}.
"""

import asyncio
import sys
import traceback
from typing import Any

from detent import AsyncClient
from detent.contract.pull import ClaimedRun
from detent.errors import OwnershipLost

LEASE_SECONDS = 30


async def send(client: AsyncClient, run: ClaimedRun) -> dict[str, Any]:
    """The work itself. The key is the same for every attempt of this run, so a provider can refuse a second mail. What
    it logs is shown by `detent run logs`."""
    await client.log_run(run, f"sending to {run.payload['to']}")
    return {"to": run.payload["to"], "key": run.idempotency_key}


async def work(client: AsyncClient, run: ClaimedRun) -> None:
    task = asyncio.create_task(send(client, run))
    try:
        while not (await asyncio.wait({task}, timeout=LEASE_SECONDS / 3))[0]:
            if (await client.heartbeat_run(run, LEASE_SECONDS)).cancel:
                task.cancel()
        await client.complete_run(run, task.result())
    except OwnershipLost as error:
        task.cancel()  # somebody else has the run by now
        print(error, file=sys.stderr)
    except (Exception, asyncio.CancelledError) as error:
        await client.fail_run(run, repr(error), traceback="".join(traceback.format_exception(error)))


async def main(queue: str, worker: str = "pull-worker.py", functions: tuple[str, ...] = ("send",)) -> None:
    async with AsyncClient() as client, asyncio.TaskGroup() as tasks:
        while True:
            for run in await client.claim_runs(
                queue, worker, limit=10, lease_seconds=LEASE_SECONDS, wait_seconds=20, functions=functions
            ):
                tasks.create_task(work(client, run))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
