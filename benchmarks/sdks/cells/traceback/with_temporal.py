import asyncio

from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter


async def main() -> Failure:
    failure = Failure()
    try:
        try:
            {}["missing"]
        except KeyError as cause:
            cause.add_note("order 17")
            raise ValueError("no such order") from cause
    except ValueError as error:
        await DataConverter.default.encode_failure(error, failure)
    return failure


failure = asyncio.run(main())
text = f"{failure.stack_trace}\n{failure.cause.stack_trace}\n{failure.cause.message}"
print({"raised": "in main" in failure.stack_trace, "cause": failure.cause.message, "note": "order 17" in text})
print("partly: the stack traces of exception and cause, without notes; of activities the last failed attempt is kept")
