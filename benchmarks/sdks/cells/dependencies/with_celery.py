import inspect

from celery import Celery

print([name for name in dir(Celery) if "depend" in name.lower() or "inject" in name.lower()])
print(inspect.signature(Celery.task))
print("no: there are none; a base class of your own can cache what a process shares")
