from temporalio.testing import WorkflowEnvironment

print([name for name in dir(WorkflowEnvironment) if name.startswith("start_")])
print(
    "partly: (read) start_time_skipping_v2 starts a full server that skips time, a download; schedules were not tried"
)
