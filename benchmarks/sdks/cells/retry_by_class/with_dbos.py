from dbos import DBOS
from dbos_setup import configure, worker

configure()
calls = []


@DBOS.step(
    retries_allowed=True,
    max_attempts=3,
    interval_seconds=0.01,
    should_retry=lambda error: isinstance(error, TimeoutError),
)
def fail(kind: str) -> None:
    calls.append(kind)
    raise {"slow": TimeoutError, "missing": KeyError}[kind]()


@DBOS.workflow()
def run(kind: str) -> None:
    fail(kind)


with worker():
    for kind in ("slow", "missing"):
        try:
            run(kind)
        except Exception as error:
            print(type(error).__name__)
print(sorted(calls))
assert sorted(calls) == ["missing", "slow", "slow", "slow"]
print("partly: a predicate; only steps are retried, in the process that runs them")
