import inspect

from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

print([name for name in dir(WorkflowEnvironment) if name in ("start_time_skipping", "start_time_skipping_v2", "sleep")])
print(list(inspect.signature(WorkflowEnvironment.start_time_skipping).parameters)[:3], ActivityEnvironment.__name__)
print("partly: (read) a test server that skips time; it is a program that is downloaded at the first use")
