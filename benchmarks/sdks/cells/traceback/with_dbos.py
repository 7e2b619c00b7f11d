from dbos import DBOS, DBOSClient
from dbos_setup import configure, url, worker

configure()


@DBOS.workflow()
def fail() -> None:
    try:
        {}["missing"]
    except KeyError as cause:
        cause.add_note("order 17")
        raise ValueError("no such order") from cause


with worker():
    DBOS.register_queue("mail")
    handle = DBOS.enqueue_workflow("mail", fail)
    try:
        handle.get_result()
    except ValueError:
        pass
    client = DBOSClient(system_database_url=url)
    error = client.retrieve_workflow(handle.get_workflow_id()).get_status().error
    print(repr(error), error.__traceback__, error.__cause__)
    client.destroy()
assert error.__traceback__ is None
print("no: the pickled exception is kept; its traceback and its cause are not")
