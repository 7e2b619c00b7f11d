import asyncio
from typing import Annotated

from taskiq import Context, TaskiqDepends
from taskiq_setup import broker, worker


@broker.task
async def report(kind: str, context: Annotated[Context, TaskiqDepends()]) -> list[str]:
    return [context.message.task_id, str(context.message.labels.get("_retries", 0)), kind]


async def main() -> None:
    async with worker():
        sent = await report.kiq("daily")
        print(got := (await sent.wait_result(timeout=20)).return_value)
    assert got == [sent.task_id, "0", "daily"]


asyncio.run(main())
print("partly: Context is injected; the attempt is a label, and type checkers ask callers for the context too")
