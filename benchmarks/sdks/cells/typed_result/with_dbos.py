from dbos import DBOS


@DBOS.workflow()
async def count(of: str) -> int:
    return len(of)


@DBOS.workflow()
def count_in_a_thread(of: str) -> int:
    return len(of)


async def main() -> None:
    number: int = await (await DBOS.enqueue_workflow_async("mail", count, of="abc")).get_result()
    text: str = await (await DBOS.enqueue_workflow_async("mail", count, of="abc")).get_result()  # wrong
    print(number, text)


def in_plain_code() -> None:
    number: int = DBOS.enqueue_workflow("mail", count_in_a_thread, of="abc").get_result()
    text: str = DBOS.enqueue_workflow("mail", count_in_a_thread, of="abc").get_result()  # wrong
    print(number, text)
