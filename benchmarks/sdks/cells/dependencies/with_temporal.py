import inspect

from temporalio.worker import Worker

print([name for name in inspect.signature(Worker.__init__).parameters if "depend" in name or "inject" in name])
print("no: activities are methods of an object that you make once per worker; nothing is made per run")
