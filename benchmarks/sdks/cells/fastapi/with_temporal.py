import inspect

from temporalio.worker import Worker

print(inspect.iscoroutinefunction(Worker.run), list(inspect.signature(Worker.__init__).parameters)[-6:])
print("partly: (read) a worker can run in a lifespan, with graceful_shutdown_timeout; the server is another system")
