import asyncio

from detent_setup import app, worker

seen = []


@app.on_startup
async def start() -> None:
    seen.append("start")


@app.on_shutdown
def stop() -> None:
    seen.append("stop")


@app.task
async def nothing() -> None: ...


async def main() -> None:
    async with worker():
        pass


asyncio.run(main())
print(seen)
assert seen == ["start", "stop"]
print("yes: hooks or a lifespan, plain or async, in workers and in handler processes")
