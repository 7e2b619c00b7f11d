import asyncio

from procrastinate import RetryStrategy
from procrastinate_setup import app, prepare, work

calls = []


@app.task(retry=RetryStrategy(max_attempts=2, retry_exceptions={TimeoutError}))
async def fail(kind: str) -> None:
    calls.append(kind)
    raise {"slow": TimeoutError, "missing": KeyError}[kind]()


async def main() -> None:
    async with app.open_async():
        await prepare()
        await fail.defer_async(kind="slow")
        await fail.defer_async(kind="missing")
        for _ in range(4):
            await work()
    print(sorted(calls))
    print("partly: RetryStrategy(retry_exceptions=…); there is no list of classes that are not retried")


asyncio.run(main())
