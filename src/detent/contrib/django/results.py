"""From the rows of a run to a result of Django.

Results are read on Django's connection, so a run that the same transaction enqueued is there. Where the role may not
read detent's tables, the API answers, if the options name it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, transaction
from django.utils.module_loading import import_string

from detent.contrib.django import registry, sql
from detent.contrib.django.compat import Task, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from detent.contrib.django.enqueuing import NO_SCHEMA, REFUSED, state_of
from detent.contrib.django.failures import error_of, reason_error
from detent.domain.identity import RunKey, decode_run_id, node_name
from detent.errors import NotFound

if TYPE_CHECKING:
    from detent.contrib.django.backend import DetentBackend

FAULTS = ("failed", "timeout", "lost")
STATUS = {
    "pending": TaskResultStatus.READY,
    "retrying": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
}

Row = Mapping[str, Any]


def read_result(backend: DetentBackend, result_id: str) -> Any:
    key = _key(result_id)
    if key is None:
        raise TaskResultDoesNotExist(result_id)
    try:
        found = _rows(backend, key)
    except DatabaseError as error:
        found = _instead(backend, result_id, error)
    if found is None:
        raise TaskResultDoesNotExist(result_id)
    return result_of(backend, result_id, *found)


def _key(result_id: object) -> RunKey | None:
    try:
        return decode_run_id(UUID(str(result_id)))
    except ValueError:
        return None


def _rows(backend: DetentBackend, key: RunKey) -> tuple[Row, Sequence[Row]] | None:
    chosen = backend.settings
    values = {**key._asdict(), "tenant": chosen.tenant}
    connection = connections[chosen.database]
    # A refusal of the server must not end the transaction of the caller.
    with transaction.atomic(using=chosen.database, savepoint=connection.in_atomic_block), connection.cursor() as cursor:
        cursor.execute(sql.text_of(sql.READ_RESULT, chosen.schema), values)
        runs = _named(cursor)
        if not runs:
            return None
        cursor.execute(sql.text_of(sql.LIST_ATTEMPTS, chosen.schema), values)
        return runs[0], _named(cursor)


def _named(cursor: Any) -> list[Row]:
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _instead(backend: DetentBackend, result_id: str, error: DatabaseError) -> tuple[Row, Sequence[Row]] | None:
    state, chosen = state_of(error), backend.settings
    if state in NO_SCHEMA:
        raise ImproperlyConfigured(
            f"The database {chosen.database!r} has no schema {chosen.schema!r} of detent: run "
            "`manage.py detent migrate`."
        ) from error
    if state != REFUSED:
        raise error
    if chosen.api_url is None:
        raise ImproperlyConfigured(
            "The database role of Django may not read detent's tables, so it cannot read results: grant it SELECT on "
            f"{chosen.schema}.runs, attempts, jobs and tenants, or give the backend OPTIONS api_url and api_key."
        ) from error
    return _from_api(chosen.api_url, chosen.api_key, result_id)


def _from_api(url: str, api_key: str | None, result_id: str) -> tuple[Row, Sequence[Row]] | None:
    from detent.client import Client

    with Client(url, api_key) as client:
        try:
            run = client.get_run(UUID(result_id))
        except NotFound:
            return None
        own = {} if run.payload is msgspec.UNSET else {"payload": json.dumps(run.payload)}
        payload = own or {"payload": json.dumps(client.get_job(run.job_id).payload)}
    row = {
        "name": run.job, "status": str(run.status), "reason": run.reason, "scheduled_at": run.scheduled_at,
        "token": run.token, "node": run.node, "started_at": run.started_at, "finished_at": run.finished_at,
        "result": json.dumps(run.result), **payload,
    }  # fmt: skip
    attempts = [
        {name: getattr(each, name, None) for name in ("token", "node", "started_at", "outcome", "error", "traceback")}
        for each in run.attempts
    ]
    return row, attempts


def result_of(backend: DetentBackend, result_id: str, run: Row, attempts: Sequence[Row]) -> Any:
    payload = json.loads(run["payload"]) if run["payload"] else {}
    status = STATUS.get(run["status"], TaskResultStatus.FAILED)
    starts, workers = _tries(run, attempts)
    result = TaskResult(
        task=_task(backend, run["name"], payload.get("using", {})), id=str(UUID(result_id)), status=status,
        enqueued_at=_time(payload.get("enqueued_at")) or run["scheduled_at"],
        started_at=min(starts, default=None), last_attempted_at=max(starts, default=None),
        finished_at=run["finished_at"], args=payload.get("args", []), kwargs=payload.get("kwargs", {}),
        backend=backend.alias, errors=_errors(run, attempts), worker_ids=workers,
    )  # fmt: skip
    if status == TaskResultStatus.SUCCESSFUL and run["result"] is not None:
        object.__setattr__(result, "_return_value", json.loads(run["result"]))
    return result


def _tries(run: Row, attempts: Sequence[Row]) -> tuple[list[datetime], list[str]]:
    """When each attempt started, and on which node. The one that runs or succeeded may only be in the run itself."""
    tried = [each for each in attempts if each["outcome"] != "stale"]
    if run["node"] is not None and run["token"] not in {each["token"] for each in tried}:
        tried.append(run)
    starts = [each["started_at"] for each in tried if each["started_at"] is not None]
    return starts, [_node(each["node"]) for each in tried if each["node"] is not None]


def _node(node: int | str) -> str:
    return node if isinstance(node, str) else node_name(node)


def _errors(run: Row, attempts: Sequence[Row]) -> list[Any]:
    errors = [
        error_of(each["outcome"], each["error"], each["traceback"]) for each in attempts if each["outcome"] in FAULTS
    ]
    if run["status"] in ("cancelled", "skipped", "missed"):
        errors.append(reason_error(run["status"], run["reason"]))
    return errors


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _task(backend: DetentBackend, name: str, using: Mapping[str, Any]) -> Any:
    """The task as it was enqueued. A process that has not imported its module does it now, as Django's backends do."""
    task = registry.find(backend.alias, name)
    if task is None:
        try:
            task = import_string(name)
        except ImportError as error:
            raise TaskResultDoesNotExist(f"The task {name} of this result is no longer in the code.") from error
    if not isinstance(task, Task):
        raise TaskResultDoesNotExist(f"{name}, the job of this run, is no task of Django.")
    changed = {**using, "run_after": _time(using.get("run_after"))}
    return task.using(**changed, backend=None if task.backend == backend.alias else backend.alias)
