import subprocess
import sys
import time
from pathlib import Path

from dbos import DBOS
from dbos_setup import configure, worker

configure(executor_id=sys.argv[1] if sys.argv[1:] else "local")
STARTS = Path("starts")


@DBOS.workflow()
def slow() -> None:
    with STARTS.open("a") as file:
        file.write("x")
    time.sleep(5)


def again_after(executor: str, seconds: float) -> float | None:
    """Seconds until a new process with this id executes what a killed one left."""
    process, began = subprocess.Popen([sys.executable, __file__, executor]), time.monotonic()
    while STARTS.read_text() == "x" and time.monotonic() - began < seconds:
        time.sleep(0.1)
    process.kill()
    return time.monotonic() - began if STARTS.read_text() != "x" else None


def main() -> None:
    first = subprocess.Popen([sys.executable, __file__, "first"])
    while not STARTS.exists():
        time.sleep(0.1)
    first.kill()
    other, same = again_after("second", 30), again_after("first", 30)
    print("by another executor:", other, "by one with the same id:", same)
    assert other is None and same is not None
    print("partly: when a process with the id of the killed one starts; others need the service Conductor")


if sys.argv[1:]:
    with worker():
        DBOS.register_queue("mail")
        if sys.argv[1] == "first" and not STARTS.exists():
            DBOS.enqueue_workflow("mail", slow)
        time.sleep(60)
else:
    main()
