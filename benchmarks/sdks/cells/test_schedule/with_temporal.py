from temporalio.testing import WorkflowEnvironment

print(WorkflowEnvironment.start_time_skipping.__doc__[:200])
print("no: (read) the test server that skips time has no schedules; the other one runs in real time")
