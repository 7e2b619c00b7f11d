from temporalio.client import Client, ScheduleOverlapPolicy

print(Client.create_schedule.__name__, [policy.name for policy in ScheduleOverlapPolicy])
print("yes: (read) the server owns the schedule; clients and workers do not fire it")
