import asyncio

from dbos import DBOS
from dbos_setup import configure, worker

configure()


@DBOS.workflow()
def count(of: str) -> int:
    return len(of)


@DBOS.workflow()
async def count_async(of: str) -> int:
    return len(of)


async def main() -> int:
    return await (await DBOS.enqueue_workflow_async("mail", count_async, of="abc")).get_result()


with worker():
    DBOS.register_queue("mail")
    print(DBOS.enqueue_workflow("mail", count, of="abcd").get_result(), asyncio.run(main()))
print("yes: every verb in both")
