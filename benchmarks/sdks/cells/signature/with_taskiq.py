from taskiq_setup import broker


@broker.task
async def takes_sockets(*sockets: object) -> None: ...


@broker.task
async def positional_only(socket: object, /) -> None: ...


accepted = list(broker.get_all_tasks())
print(accepted)
assert len(accepted) == 2
print("no: everything is accepted")
