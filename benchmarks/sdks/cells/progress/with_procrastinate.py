from procrastinate import JobContext
from procrastinate.jobs import Job

print([name for name in dir(JobContext) if not name.startswith("_")])
print([name for name in Job.__annotations__])
print("no: neither the context nor the job has a place for it")
