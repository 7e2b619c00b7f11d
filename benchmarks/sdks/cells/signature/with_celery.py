from celery_setup import app


@app.task(bind=True)
def without_parameters() -> None: ...


@app.task
def takes_sockets(*sockets: object) -> None: ...


accepted = [name for name in app.tasks if name.startswith("cell.")]
print(accepted)
assert len(accepted) == 2
print("no: both are accepted; a call fails where it is enqueued, or on the worker")
