import asyncio

from procrastinate import JobContext
from procrastinate_setup import app, prepare, work

seen = []


@app.task(pass_context=True)
async def report(context: JobContext, kind: str) -> None:
    seen.append((context.job.id, context.job.attempts, kind))


async def main() -> None:
    async with app.open_async():
        await prepare()
        await report.defer_async(kind="daily")
        await work()
    print(seen)
    print("yes: pass_context=True passes a typed JobContext as the first argument")


asyncio.run(main())
