import asyncio

from detent_setup import app, worker


@app.task
async def count(of: str) -> int:
    return len(of)


def plain() -> int:
    return count.enqueue_sync(of="abcd").result(timeout=20)


async def main() -> None:
    async with worker():
        print(await (await count.enqueue(of="abc")).result(timeout=20), await asyncio.to_thread(plain))


asyncio.run(main())
print("yes: every verb in both")
