import inspect

from procrastinate import App

print(inspect.signature(App.run_worker_async).parameters.keys())
print("no: there is none; `additional_context` of the worker is a dict that every job can read")
