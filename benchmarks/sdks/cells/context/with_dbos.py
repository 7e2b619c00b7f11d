from dbos import DBOS
from dbos_setup import configure, worker

configure()


@DBOS.step(retries_allowed=True)
def attempt() -> object:
    return DBOS.step_status.current_attempt


@DBOS.workflow()
def report(kind: str) -> list[object]:
    return [DBOS.workflow_id, attempt(), kind]


with worker():
    DBOS.register_queue("mail")
    handle = DBOS.enqueue_workflow("mail", report, kind="daily")
    print(got := handle.get_result())
assert got[0] == handle.get_workflow_id()
print("yes: typed properties of DBOS in the context of the call; nothing is injected")
