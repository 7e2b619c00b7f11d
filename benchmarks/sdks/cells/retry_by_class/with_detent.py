import asyncio
import contextlib

from detent_setup import app, worker

from detent.errors import DetentError

calls = []


@app.task(max_retries=2, retry_base_seconds=0.1, retry_on=(TimeoutError,), no_retry_on=(KeyError,))
async def fail(kind: str) -> None:
    calls.append(kind)
    raise {"slow": TimeoutError, "missing": KeyError}[kind]()


async def main() -> None:
    async with worker():
        for handle in await fail.enqueue_many([fail.call("slow"), fail.call("missing")]):
            with contextlib.suppress(DetentError):
                await handle.result(timeout=30)


asyncio.run(main())
print(sorted(calls))
assert sorted(calls) == ["missing", "slow", "slow", "slow"]
print("yes: retry_on and no_retry_on, with classes")
