import inspect

from taskiq import AsyncBroker
from taskiq.decor import AsyncTaskiqDecoratedTask

print([name for name in dir(AsyncTaskiqDecoratedTask) if not name.startswith("_")])
print(inspect.signature(AsyncBroker.kick))
print("no: one message per call")
