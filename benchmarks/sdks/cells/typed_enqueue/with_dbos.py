from dbos import DBOS, SetEnqueueOptions


@DBOS.workflow()
async def send_mail(to: str, copies: int = 1) -> int:
    return copies


async def main() -> None:
    await DBOS.enqueue_workflow_async("mail", send_mail, to="ada@example.com", copies=2)
    await DBOS.enqueue_workflow_async("mail", send_mail, too="ada@example.com")  # wrong
    await DBOS.enqueue_workflow_async("mail", send_mail)  # wrong
    await DBOS.enqueue_workflow_async("mail", send_mail, to="ada@example.com", copies="2")  # wrong
    with SetEnqueueOptions(delay_seconds=300):
        await DBOS.enqueue_workflow_async("mail", send_mail, to="ada@example.com")
        await DBOS.enqueue_workflow_async("mail", send_mail, too="ada@example.com")  # wrong
