import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector())


@app.task
async def count(of: str) -> int:
    return len(of)


async def main() -> None:
    job = await count.defer_async(of="abc")  # the number of the job: results are not stored
    number: int = await job.result()  # needed
    text: str = await job.result()  # wrong
    print(number, text)
