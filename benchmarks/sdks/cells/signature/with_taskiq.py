from taskiq_setup import broker


@broker.task
async def takes_sockets(*sockets: object) -> None: ...


@broker.task
async def positional_only(socket: object, /) -> None: ...


accepted = [name.rpartition(":")[2] for name in broker.get_all_tasks()]
print(accepted)
assert len(accepted) == 2
print("no: everything is accepted")
