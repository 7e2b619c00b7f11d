from celery import Task
from celery_setup import app, worker


@app.task(bind=True)
def report(self: Task, kind: str) -> list[object]:
    return [self.request.id, self.request.retries, kind]


sent = report.delay("daily")
with worker():
    print(got := sent.get(timeout=20))
assert got == [sent.id, 0, "daily"]
print("yes: bind=True passes the task, whose request has id and retries")
