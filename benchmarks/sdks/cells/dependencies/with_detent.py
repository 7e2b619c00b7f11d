import asyncio

from detent_setup import app, worker

from detent import Depends

seen = []


async def pool():
    seen.append("pool opens")
    yield "pool"
    seen.append("pool closes")


async def session(pool: str = Depends(pool, scope="worker")):
    seen.append("session opens")
    yield f"session of {pool}"
    seen.append("session closes")


@app.task
async def use(session: str = Depends(session)) -> str:
    return session


async def main() -> None:
    async with worker():
        print(await (await use.enqueue()).result(timeout=20))


asyncio.run(main())
print(seen)
assert seen == ["pool opens", "session opens", "session closes", "pool closes"]
print("yes: Depends, per run and per worker, with clean-up, and app.override for tests")
