import inspect

from taskiq import SmartRetryMiddleware

print(inspect.signature(SmartRetryMiddleware))
print("no: one delay for all; a middleware of your own could choose")
