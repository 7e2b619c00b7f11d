import subprocess
import sys
import time
from datetime import datetime

from dbos import DBOS
from dbos_setup import configure, worker

configure()


@DBOS.workflow()
def tick(at: datetime, context: object) -> None: ...


def serve() -> None:
    with worker():
        DBOS.apply_schedules(
            [{"schedule_name": "tick", "workflow_fn": tick, "schedule": "*/2 * * * * *", "context": None}]
        )
        time.sleep(14)
        runs = [workflow.workflow_id for workflow in DBOS.list_workflows(name=tick.__qualname__)]
    if not sys.argv[1:]:
        print(len(runs), len(set(runs)))
        assert runs and len(runs) == len(set(runs))
        print("yes: the id of a workflow is its schedule and its tick")


second = None if sys.argv[1:] else subprocess.Popen([sys.executable, __file__, "second"])
serve()
if second is not None:
    second.wait()
