from procrastinate_setup import app


@app.task(pass_context=True)
async def without_parameters() -> None: ...


@app.task
async def takes_sockets(*sockets: object) -> None: ...


accepted = [name for name in app.tasks if name.startswith("__main__")]
print(accepted)
assert len(accepted) == 2
print("no: both are accepted; their jobs fail on the worker")
