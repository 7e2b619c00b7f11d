import asyncio

from taskiq_setup import broker, worker


@broker.task
async def send_mail(to: str, copies: int = 1) -> str:
    return f"{to} {copies!r}"


async def main() -> None:
    await broker.startup()
    sent = [await send_mail.kiq(**wrong) for wrong in ({"too": "ada"}, {"to": "ada", "copies": "two"})]
    async with worker():
        for one in sent:
            result = await one.wait_result(timeout=20)
            print(result.is_err, result.return_value, result.error)


asyncio.run(main())
print("no: both wrong calls are sent; one fails on the worker, the wrong type is passed with a warning in its log")
