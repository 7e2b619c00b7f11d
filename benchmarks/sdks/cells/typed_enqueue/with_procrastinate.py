import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector())


@app.task
async def send_mail(to: str, copies: int = 1) -> int:
    return copies


async def main() -> None:
    await send_mail.defer_async(to="ada@example.com", copies=2)
    await send_mail.defer_async(too="ada@example.com")  # wrong
    await send_mail.defer_async()  # wrong
    await send_mail.defer_async(to="ada@example.com", copies="2")  # wrong
    await send_mail.configure(schedule_in={"minutes": 5}).defer_async(to="ada@example.com")
    await send_mail.configure(schedule_in={"minutes": 5}).defer_async(too="ada@example.com")  # wrong
