import asyncio

from detent_setup import app, worker

from detent import Run


@app.task
async def report(run: Run, kind: str) -> tuple[str, int, str]:
    return str(run.id), run.attempt, kind


async def main() -> None:
    async with worker():
        handle = await report.enqueue(kind="daily")
        print(got := await handle.result(timeout=20))
    assert got == (str(handle.id), 1, "daily")


asyncio.run(main())
print("yes: a first parameter annotated Run; callers do not see it")
