from detent import Detent

app = Detent("shop")


@app.task
async def count(of: str) -> int:
    return len(of)


@app.task
def count_in_a_thread(of: str) -> int:
    return len(of)


async def main() -> None:
    number: int = await (await count.enqueue(of="abc")).result(timeout=10)
    text: str = await (await count.enqueue(of="abc")).result(timeout=10)  # wrong
    print(number, text)


def in_plain_code() -> None:
    number: int = count_in_a_thread.enqueue_sync(of="abc").result(timeout=10)
    text: str = count_in_a_thread.enqueue_sync(of="abc").result(timeout=10)  # wrong
    print(number, text)
