import asyncio
import contextlib

from detent_setup import app, worker

from detent.errors import DetentError


@app.task(max_retries=1, retry_base_seconds=0.1)
async def fail() -> None:
    try:
        {}["missing"]
    except KeyError as cause:
        cause.add_note("order 17")
        raise ValueError("no such order") from cause


async def main() -> None:
    async with worker():
        handle = await fail.enqueue()
        with contextlib.suppress(DetentError):
            await handle.result(timeout=30)
        texts = [attempt.traceback for attempt in (await handle.run()).attempts]
    for text in texts:
        found = {name: name in text for name in ("ValueError: no such order", "KeyError: 'missing'", "order 17")}
        print(found)
        assert all(found.values())
    assert len(texts) == 2


asyncio.run(main())
print("yes: of every attempt, with cause and notes, in API, command line, log and dashboard")
