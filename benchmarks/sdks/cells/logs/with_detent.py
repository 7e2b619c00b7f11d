import logging
import time

from detent_setup import app, served


@app.task
def import_orders() -> None:
    logging.getLogger("shop").info("asking the supplier")
    print("page 1")
    time.sleep(3)


if __name__ == "__main__":
    with served(__file__) as client:
        handle = import_orders.enqueue_sync()
        seen = []
        for line in client.follow_run_logs(handle.id):
            message = getattr(line, "message", "")
            seen.append((message, handle.status()))
            print(*seen[-1])
    assert [message for message, _ in seen][:2] == ["asking the supplier", "page 1"] and seen[0][1] == "running"
    print(
        "yes: loggers and prints of each attempt, stored with the run, and followed from another process while it runs"
    )
