import inspect

from procrastinate import App

print([name for name in dir(App) if "start" in name or "stop" in name or "hook" in name or "on_" in name])
print(list(inspect.signature(App.run_worker_async).parameters))
print("no: the command `procrastinate worker` has no hooks; write a program that opens things and runs the worker")
