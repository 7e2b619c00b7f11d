import asyncio

from celery_setup import app, worker


@app.task
def count(of: str) -> int:
    return len(of)


async def main() -> int:
    sent = await asyncio.to_thread(count.delay, of="abc")  # the client blocks
    return await asyncio.to_thread(sent.get, timeout=20)


with worker():
    print(count.delay(of="abcd").get(timeout=20), asyncio.run(main()))
print("partly: blocking only; coroutines need a thread, and tasks cannot be coroutines")
