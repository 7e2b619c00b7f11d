from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker("redis://127.0.0.1")


@broker.task(retry_on_error=True, max_retries=5)
async def send_mail(to: str) -> None: ...


@broker.task(retry_on_error=True, max_retrys=5)  # wrong
async def second(to: str) -> None: ...


@broker.task(retry_on_error=True, max_retries="five")  # wrong
async def third(to: str) -> None: ...


async def main() -> None:
    await send_mail.kicker().with_labels(delay=5).kiq(to="ada@example.com")
    await send_mail.kicker().with_labels(dealy=5).kiq(to="ada@example.com")  # wrong
