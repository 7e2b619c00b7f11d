import asyncio

from taskiq import TaskiqMessage, TaskiqMiddleware, TaskiqResult
from taskiq_setup import broker, worker

seen = []


class Around(TaskiqMiddleware):
    async def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        seen.append(message.kwargs)
        return message

    async def post_execute(self, message: TaskiqMessage, result: TaskiqResult) -> None:
        seen.append(result.return_value)


broker.add_middlewares(Around())


@broker.task
async def count(of: str) -> int:
    return len(of)


async def main() -> None:
    async with worker():
        await (await count.kiq(of="abc")).wait_result(timeout=20)


asyncio.run(main())
print(seen)
assert seen == [{"of": "abc"}, 3]
print("yes: hooks before and after, also where a task is sent and where its result is saved")
