import inspect

from temporalio import workflow

parameters = inspect.signature(workflow.execute_activity).parameters
print([name for name in parameters if name.endswith("timeout")])
print("yes: (read) after the heartbeat timeout or start-to-close timeout of the activity, which you choose")
