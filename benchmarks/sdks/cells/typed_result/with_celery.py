from celery import Celery

app = Celery("shop")


@app.task
def count(of: str) -> int:
    return len(of)


number: int = count.delay(of="abc").get(timeout=10)
text: str = count.delay(of="abc").get(timeout=10)  # wrong
