import asyncio
import os
from datetime import UTC, datetime, timedelta

from taskiq.kicker import AsyncKicker
from taskiq_redis import ListRedisScheduleSource
from taskiq_setup import broker

source = ListRedisScheduleSource(os.environ["REDIS_URL"])


@broker.task
async def send_mail(to: str) -> None: ...


async def main() -> None:
    await broker.startup()
    await source.startup()
    await send_mail.schedule_by_time(source, datetime.now(UTC) + timedelta(minutes=5), to="a")
    await send_mail.schedule_by_time(source, datetime.now(UTC) + timedelta(days=1), to="b")
    await broker.shutdown()
    print([name for name in dir(AsyncKicker) if not name.startswith("_")])


asyncio.run(main())
print("partly: a time, through a scheduler process and its source; priority only on RabbitMQ; no unique key")
