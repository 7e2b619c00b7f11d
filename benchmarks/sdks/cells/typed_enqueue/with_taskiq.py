from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker("redis://127.0.0.1")


@broker.task
async def send_mail(to: str, copies: int = 1) -> int:
    return copies


async def main() -> None:
    await send_mail.kiq(to="ada@example.com", copies=2)
    await send_mail.kiq(too="ada@example.com")  # wrong
    await send_mail.kiq()  # wrong
    await send_mail.kiq(to="ada@example.com", copies="2")  # wrong
    await send_mail.kicker().with_labels(delay=300).kiq(to="ada@example.com")
    await send_mail.kicker().with_labels(delay=300).kiq(too="ada@example.com")  # wrong
