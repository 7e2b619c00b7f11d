from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client


@dataclass
class Mail:  # Temporal advises one dataclass as the only argument
    to: str
    copies: int = 1


@workflow.defn
class SendMail:
    @workflow.run
    async def run(self, mail: Mail) -> int:
        return mail.copies


async def main(client: Client) -> None:
    later = timedelta(minutes=5)
    await client.start_workflow(SendMail.run, Mail("ada", copies=2), id="1", task_queue="mail")
    await client.start_workflow(SendMail.run, Mail(too="ada"), id="1", task_queue="mail")  # wrong
    await client.start_workflow(SendMail.run, id="1", task_queue="mail")  # wrong
    await client.start_workflow(SendMail.run, Mail("ada", copies="2"), id="1", task_queue="mail")  # wrong
    await client.start_workflow(SendMail.run, Mail("ada"), id="1", task_queue="mail", start_delay=later)
    await client.start_workflow(SendMail.run, "ada", id="1", task_queue="mail", start_delay=later)  # wrong
