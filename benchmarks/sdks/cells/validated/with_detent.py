import asyncio

from detent_setup import app, worker


@app.task
async def send_mail(to: str, copies: int = 1) -> int:
    return copies


async def main() -> None:
    async with worker():
        refused = []
        for wrong in ({"too": "ada"}, {"to": "ada", "copies": "two"}):
            try:
                await send_mail.enqueue(**wrong)
            except Exception as error:
                refused.append(f"{type(error).__name__}: {error}")
    print(*refused, sep="\n")
    assert len(refused) == 2


asyncio.run(main())
print("yes: names and types, where the run is enqueued and again on the worker")
