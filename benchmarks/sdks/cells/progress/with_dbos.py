import time

from dbos import DBOS, DBOSClient
from dbos_setup import configure, url, worker

configure()


@DBOS.workflow()
def import_orders() -> None:
    DBOS.set_event("progress", 0.4)
    time.sleep(2)


with worker():
    DBOS.register_queue("mail")
    handle = DBOS.enqueue_workflow("mail", import_orders)
    client = DBOSClient(system_database_url=url)
    print(seen := client.get_event(handle.get_workflow_id(), "progress", 20), handle.get_status().status)
    handle.get_result()
    client.destroy()
assert seen == 0.4
print("yes: events under keys of your own, and streams")
