from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy

LIMIT = timedelta(minutes=1)


@activity.defn
async def send_mail(to: str) -> None: ...


@workflow.defn
class Mails:
    @workflow.run
    async def run(self, to: str) -> None:
        five = RetryPolicy(maximum_attempts=5)
        await workflow.execute_activity(send_mail, to, start_to_close_timeout=LIMIT, retry_policy=five)
        await workflow.execute_activity(send_mail, to, start_to_close_timeout=LIMIT, retry_polcy=five)  # wrong
        RetryPolicy(maximum_attempts="five")  # wrong
        await workflow.execute_activity(send_mail, to, start_to_close_timout=LIMIT)  # wrong
