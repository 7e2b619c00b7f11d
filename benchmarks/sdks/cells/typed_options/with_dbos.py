from dbos import DBOS, SetEnqueueOptions


@DBOS.step(retries_allowed=True, max_attempts=5)
async def send_mail(to: str) -> None: ...


@DBOS.step(retries_allowed=True, max_atempts=5)  # wrong
async def second(to: str) -> None: ...


@DBOS.step(retries_allowed=True, max_attempts="five")  # wrong
async def third(to: str) -> None: ...


def main() -> None:
    with SetEnqueueOptions(priority=5):
        pass
    with SetEnqueueOptions(priorty=5):  # wrong
        pass
