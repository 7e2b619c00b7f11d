from temporalio import activity, workflow

print(type(activity.logger).__name__, type(workflow.logger).__name__)
print("no: (read) loggers add context to the log of the worker; the history has no lines")
