from celery import Task
from celery_setup import app, worker

seen = []


class Around(Task):
    def __call__(self, *args, **kwargs):
        result = super().__call__(*args, **kwargs)
        seen.append((args, kwargs, result))
        return result


@app.task(base=Around)
def count(of: str) -> int:
    return len(of)


sent = count.delay(of="abc")
with worker():
    sent.get(timeout=20)
print(seen)
assert seen == [((), {"of": "abc"}, 3)]
print("yes: a base class with __call__, for one task or as task_cls of the app; signals beside it")
