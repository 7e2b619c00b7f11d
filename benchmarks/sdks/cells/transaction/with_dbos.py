from dbos import DBOS, DBOSClient
from dbos_setup import configure, url, worker
from sqlalchemy import create_engine

configure()


@DBOS.workflow(name="send-mail")
def send_mail(to: str) -> None: ...


with worker():
    DBOS.register_queue("mail")
    client = DBOSClient(system_database_url=url)
    with create_engine(url).connect() as connection:
        for to, end in (("rolled back", connection.rollback), ("committed", connection.commit)):
            client.enqueue_in_transaction(connection, {"workflow_name": "send-mail", "queue_name": "mail"}, to)
            end()
    found = [workflow.input["args"] for workflow in DBOS.list_workflows()]
    client.destroy()
print(found)
assert found == [("committed",)]
print("partly: on a connection of SQLAlchemy, with the workflow's name as text and untyped arguments")
