import asyncio
from collections.abc import AsyncIterator

from detent_setup import app, worker

from detent import Run

seen = []


@app.middleware
async def around(run: Run) -> AsyncIterator[None]:
    result = yield
    seen.append((run.payload, result))


@app.task
async def count(of: str) -> int:
    return len(of)


async def main() -> None:
    async with worker():
        await (await count.enqueue(of="abc")).result(timeout=20)


asyncio.run(main())
print(seen)
assert seen == [({"of": "abc"}, 3)]
print("yes: a generator around every run of the app")
