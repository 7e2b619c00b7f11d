from dbos import DBOS, SetEnqueueOptions
from dbos._error import DBOSQueueDeduplicatedError
from dbos_setup import configure, worker

configure()


@DBOS.workflow()
def send_mail(to: str) -> None: ...


with worker():
    DBOS.register_queue("mail")
    with SetEnqueueOptions(delay_seconds=300):
        DBOS.enqueue_workflow("mail", send_mail, "a")
    with SetEnqueueOptions(priority=5):
        DBOS.enqueue_workflow("mail", send_mail, "c")
    with SetEnqueueOptions(deduplication_id="welcome-d", delay_seconds=60):
        DBOS.enqueue_workflow("mail", send_mail, "d")
        try:
            DBOS.enqueue_workflow("mail", send_mail, "d")
        except DBOSQueueDeduplicatedError as error:
            print(error)
print("partly: delay, priority and a unique key until the run has ended; no exact time, no time for the key")
