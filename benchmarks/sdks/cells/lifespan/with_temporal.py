import inspect

from temporalio.worker import Worker

print([name for name in dir(Worker) if name in ("__aenter__", "__aexit__", "run", "shutdown")])
print([name for name in inspect.signature(Worker.__init__).parameters if name.startswith("on_")])
print("partly: (read) your own program makes the worker, with code of yours around it; on_fatal_error beside it")
