import logging

from celery_setup import app, worker


@app.task
def import_orders() -> None:
    logging.getLogger("shop").warning("asking the supplier")
    print("page 1")


sent = import_orders.delay()
with worker():
    sent.get(timeout=20)
print(sorted(sent.backend.get_task_meta(sent.id)))
print("no: lines go to the log of the worker; the result has none")
