import asyncio

from taskiq import InMemoryBroker, SmartRetryMiddleware
from taskiq.brokers import inmemory_broker

broker = InMemoryBroker(await_inplace=True).with_middlewares(SmartRetryMiddleware(default_delay=3600))
calls = []


@broker.task(retry_on_error=True, max_retries=2)
async def fail_once() -> None:
    calls.append(1)
    if len(calls) == 1:
        raise TimeoutError


async def main() -> None:
    await fail_once.kiq()
    print(len(calls), [name for name in dir(inmemory_broker) if "clock" in name.lower()])


asyncio.run(main())
assert len(calls) == 2
print("partly: InMemoryBroker calls in place; delays are ignored, and there is no clock")
