from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker("redis://127.0.0.1")


@broker.task
async def count(of: str) -> int:
    return len(of)


@broker.task
def count_in_a_thread(of: str) -> int:
    return len(of)


async def main() -> None:
    number: int = (await (await count.kiq(of="abc")).wait_result(timeout=10)).return_value
    text: str = (await (await count.kiq(of="abc")).wait_result(timeout=10)).return_value  # wrong
    number = (await (await count_in_a_thread.kiq(of="abc")).wait_result(timeout=10)).return_value
    text = (await (await count_in_a_thread.kiq(of="abc")).wait_result(timeout=10)).return_value  # wrong
    print(number, text)
