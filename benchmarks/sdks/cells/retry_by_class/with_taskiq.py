import asyncio

from taskiq import SmartRetryMiddleware
from taskiq_setup import broker, worker

broker.add_middlewares(SmartRetryMiddleware(default_delay=0))
calls = []


@broker.task(retry_on_error=True, max_retries=3, types_of_exceptions=(TimeoutError,))
async def fail(kind: str) -> None:
    calls.append(kind)
    raise {"slow": TimeoutError, "missing": KeyError}[kind]()


async def main() -> None:
    async with worker():
        await fail.kiq("slow")
        await fail.kiq("missing")
        await asyncio.sleep(3)


asyncio.run(main())
print(sorted(calls))
assert sorted(calls) == ["missing", "slow", "slow", "slow"]
print("partly: types_of_exceptions with SmartRetryMiddleware; no list of classes that are not retried")
