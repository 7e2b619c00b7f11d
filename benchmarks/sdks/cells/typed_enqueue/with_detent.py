from detent import Detent

app = Detent("shop")


@app.task
async def send_mail(to: str, copies: int = 1) -> int:
    return copies


async def main() -> None:
    await send_mail.enqueue(to="ada@example.com", copies=2)
    await send_mail.enqueue(too="ada@example.com")  # wrong
    await send_mail.enqueue()  # wrong
    await send_mail.enqueue(to="ada@example.com", copies="2")  # wrong
    await send_mail.options(delay=300).enqueue(to="ada@example.com")
    await send_mail.options(delay=300).enqueue(too="ada@example.com")  # wrong
