import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector())


@app.task(queue="mail", retry=5)
async def send_mail(to: str) -> None: ...


@app.task(quue="mail")  # wrong
async def second(to: str) -> None: ...


@app.task(queue="mail", priority="high")  # wrong
async def third(to: str) -> None: ...


async def main() -> None:
    await send_mail.configure(priority=5).defer_async(to="ada@example.com")
    await send_mail.configure(priorty=5).defer_async(to="ada@example.com")  # wrong
