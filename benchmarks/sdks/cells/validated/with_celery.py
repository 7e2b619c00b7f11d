from celery_setup import app, worker


@app.task
def send_mail(to: str, copies: int = 1) -> int:
    return copies


@app.task(pydantic=True)
def send_checked_mail(to: str, copies: int = 1) -> int:
    return copies


refused = []
for task, wrong in ((send_mail, {"too": "ada"}), (send_mail, {"to": "ada", "copies": "two"})):
    try:
        task.delay(**wrong)
    except TypeError as error:
        refused.append(str(error))
print(refused)
assert len(refused) == 1  # names are checked; the wrong type was sent
checked = send_checked_mail.delay(to="ada", copies="two")
with worker():
    print(type(checked.get(timeout=20, propagate=False)))
print("partly: names are checked at enqueue; types never, or with pydantic=True on the worker")
