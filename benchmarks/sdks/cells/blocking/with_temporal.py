import inspect

from temporalio.client import Client

verbs = (Client.connect, Client.start_workflow, Client.execute_workflow)
print([inspect.iscoroutinefunction(verb) for verb in verbs])
print("partly: (read) coroutines only; activities may be plain functions, with an executor that you pass")
