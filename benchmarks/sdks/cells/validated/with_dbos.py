from dbos import DBOS, pydantic_args_validator
from dbos_setup import configure, worker

configure()


@DBOS.workflow(validate_args=pydantic_args_validator)
def send_mail(to: str, copies: int = 1) -> int:
    return copies


with worker():
    DBOS.register_queue("mail")
    refused = []
    for wrong in ({"too": "ada"}, {"to": "ada", "copies": "two"}):
        try:
            handle = DBOS.enqueue_workflow("mail", send_mail, **wrong)
            handle.get_result()
        except Exception as error:
            refused.append(type(error).__name__)
    stored = [(found.status, found.input["kwargs"]) for found in DBOS.list_workflows()]
print(refused, stored)
word = "yes" if not stored else "no" if len(stored) == 2 else "partly"
print(
    f"{word}: validate_args=pydantic_args_validator; of two wrong calls, {len(stored)} are stored and fail on the worker"
)
