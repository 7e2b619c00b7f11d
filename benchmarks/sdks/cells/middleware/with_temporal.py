from temporalio.worker import ActivityInboundInterceptor, Interceptor, WorkflowInboundInterceptor

print([name for name in dir(ActivityInboundInterceptor) if name.startswith("execute")])
print([name for name in dir(WorkflowInboundInterceptor) if name.startswith("execute")], Interceptor.__name__)
print("yes: (read) interceptors around activities, workflows and clients")
