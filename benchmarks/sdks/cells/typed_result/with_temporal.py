from temporalio import workflow
from temporalio.client import Client


@workflow.defn
class Count:
    @workflow.run
    async def run(self, of: str) -> int:
        return len(of)


async def main(client: Client) -> None:
    handle = await client.start_workflow(Count.run, "abc", id="1", task_queue="mail")
    number: int = await handle.result()
    text: str = await handle.result()  # wrong
    print(number, text)
