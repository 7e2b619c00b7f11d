from temporalio.common import RetryPolicy

print(RetryPolicy(maximum_attempts=3, non_retryable_error_types=["KeyError"]))
print("partly: (read) names of types that are not retried, as text; no list of those that are")
