import asyncio

from taskiq_setup import broker, worker


@broker.task
async def fail() -> None:
    try:
        {}["missing"]
    except KeyError as cause:
        cause.add_note("order 17")
        raise ValueError("no such order") from cause


async def main() -> None:
    async with worker():
        sent = await fail.kiq()
        await sent.wait_result(timeout=20)
        error = (await sent.get_result()).error
        print(repr(error), repr(error.__cause__), error.__traceback__, getattr(error.__cause__, "__notes__", None))
        assert error.__traceback__ is None


asyncio.run(main())
print("no: the exception and its cause are kept, without a traceback and without notes")
