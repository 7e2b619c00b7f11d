from celery import Celery

app = Celery("shop")


@app.task(queue="mail", max_retries=5)
def send_mail(to: str) -> None: ...


@app.task(queue="mail", max_retrys=5)  # wrong
def second(to: str) -> None: ...


@app.task(queue="mail", max_retries="five")  # wrong
def third(to: str) -> None: ...


send_mail.apply_async(("ada@example.com",), priority=5)
send_mail.apply_async(("ada@example.com",), priorty=5)  # wrong
