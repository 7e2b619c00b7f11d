from taskiq import AsyncTaskiqTask

verbs = [name for name in dir(AsyncTaskiqTask) if not name.startswith("_")]
print(verbs)
assert not any("cancel" in verb or "revoke" in verb for verb in verbs)
print("no: a task that was sent cannot be cancelled; the add-on taskiq-cancellation is not by its authors")
