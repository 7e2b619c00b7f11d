import inspect

from dbos import DBOS

print(list(inspect.signature(DBOS.step).parameters))
print("no: one interval and one backoff rate for all exceptions of a step")
