import asyncio

from procrastinate import RetryStrategy
from procrastinate.testing import InMemoryConnector
from procrastinate_setup import app

calls = []


@app.task(retry=RetryStrategy(max_attempts=1, wait=3600))
async def fail_once() -> None:
    calls.append(1)
    if len(calls) == 1:
        raise TimeoutError


async def main() -> None:
    memory = InMemoryConnector()
    with app.replace_connector(memory) as tested:
        job = await fail_once.defer_async()
        for _ in range(2):
            await tested.run_worker_async(wait=False, install_signal_handlers=False, listen_notify=False)
        print(len(calls), memory.jobs[job]["status"], memory.jobs[job]["scheduled_at"])
        memory.jobs[job]["scheduled_at"] = None  # there is no clock to move: the test edits the job
        await tested.run_worker_async(wait=False, install_signal_handlers=False, listen_notify=False)
        print(len(calls), memory.jobs[job]["status"])
    print("partly: an in-memory connector runs jobs without a database; the clock is the real one")


asyncio.run(main())
