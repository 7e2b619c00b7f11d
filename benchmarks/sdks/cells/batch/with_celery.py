from celery import group
from celery_setup import app


@app.task
def send_mail(to: str) -> None: ...


group(send_mail.s(to=str(number)) for number in range(1000)).apply_async()
waiting = app.connection().default_channel.client.llen("celery")
print(waiting)
assert waiting == 1000
print("partly: a group in one call, sent one message after another: a failure leaves the first part")
