from celery import Celery

app = Celery("shop")


@app.task
def send_mail(to: str, copies: int = 1) -> int:
    return copies


send_mail.delay(to="ada@example.com", copies=2)
send_mail.delay(too="ada@example.com")  # wrong
send_mail.delay()  # wrong
send_mail.delay(to="ada@example.com", copies="2")  # wrong
send_mail.apply_async(kwargs={"to": "ada@example.com"}, countdown=300)
send_mail.apply_async(kwargs={"too": "ada@example.com"}, countdown=300)  # wrong
