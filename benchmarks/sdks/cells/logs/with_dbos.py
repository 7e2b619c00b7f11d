from dbos import DBOS, WorkflowStatus
from dbos_setup import configure, worker

configure()


@DBOS.workflow()
def import_orders() -> None:
    DBOS.logger.warning("asking the supplier")


with worker():
    import_orders()
    print(sorted(WorkflowStatus.__annotations__))
print("no: DBOS.logger exports to OpenTelemetry; the workflow keeps no lines")
