from detent import Detent

app = Detent("shop")


@app.task(queue="mail", max_retries=5)
async def send_mail(to: str) -> None: ...


@app.task(queue="mail", max_retrys=5)  # wrong
async def second(to: str) -> None: ...


@app.task(queue="mail", max_retries="five")  # wrong
async def third(to: str) -> None: ...


async def main() -> None:
    await send_mail.options(priority=5).enqueue(to="ada@example.com")
    await send_mail.options(priorty=5).enqueue(to="ada@example.com")  # wrong
