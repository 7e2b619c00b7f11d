from datetime import timedelta

from temporalio.exceptions import ApplicationError

print(ApplicationError("busy", next_retry_delay=timedelta(seconds=60)).next_retry_delay)
print("partly: an exception of Temporal's own can carry a delay; by class there is none")
