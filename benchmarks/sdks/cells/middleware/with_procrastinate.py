import asyncio

from procrastinate_setup import app, prepare

seen = []


@app.task
async def count(of: str) -> int:
    return len(of)


async def around(call, context, worker):
    result = await call()
    seen.append((context.job.task_kwargs, result))
    return result


async def main() -> None:
    async with app.open_async():
        await prepare()
        await count.defer_async(of="abc")
        await app.run_worker_async(wait=False, install_signal_handlers=False, task_middleware=[around])


asyncio.run(main())
print(seen)
assert seen == [({"of": "abc"}, 3)]
print("yes: around every job of a worker, or of one task")
