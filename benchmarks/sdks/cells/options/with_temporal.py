import inspect

from temporalio.client import Client
from temporalio.common import Priority, WorkflowIDReusePolicy

parameters = inspect.signature(Client.start_workflow).parameters
print(
    [name for name in parameters if name in ("start_delay", "priority", "id", "id_reuse_policy", "id_conflict_policy")]
)
print(list(inspect.signature(Priority).parameters), [policy.name for policy in WorkflowIDReusePolicy])
print("yes: (read) start_delay, priority, and the id, unique while the workflow is open and after it by policy")
