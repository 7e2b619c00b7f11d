import asyncio

from taskiq_setup import broker, worker


@broker.task
async def count(of: str) -> int:
    return len(of)


async def main() -> int:
    async with worker():
        return (await (await count.kiq(of="abc")).wait_result(timeout=20)).return_value


print(asyncio.run(main()))
print("partly: coroutines only; plain code starts an event loop for each call")
