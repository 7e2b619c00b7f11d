from temporalio import activity, workflow

refused = []
try:

    @activity.defn
    async def keyword_only(*, to: str) -> None: ...
except TypeError as error:
    refused.append(str(error))
try:

    @workflow.defn
    class WithoutRun: ...
except ValueError as error:
    refused.append(str(error))
print(*refused, sep="\n")
assert len(refused) == 2
print("yes: both are refused where they are defined")
