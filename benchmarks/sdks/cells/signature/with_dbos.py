from dbos import DBOS
from dbos_setup import configure

configure()


@DBOS.workflow()
def takes_sockets(*sockets: object) -> None: ...


@DBOS.workflow()
def positional_only(socket: object, /) -> None: ...


print("no: everything is accepted, and pickled where it can be")
