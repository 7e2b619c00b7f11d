from detent_setup import app

from detent import Run


async def takes_sockets(*sockets: object) -> None: ...


async def run_comes_second(to: str, run: Run) -> None: ...


refused = []
for function in (takes_sockets, run_comes_second):
    try:
        app.task(function)
    except Exception as error:
        refused.append(str(error))
print(*refused, sep="\n")
assert len(refused) == 2
print("yes: when the module is imported, with a sentence")
