"""A synchronous client that speaks in documents, the API's JSON as dicts and lists: what the command line uses.

Programs use `detent.Client`, whose answers have types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from detent.client.transport import (
    ANSWER_SECONDS,
    NO_HEADERS,
    PAGE_SIZE,
    Connection,
    Document,
    encode,
    segment,
    with_query,
)

NOTHING: Mapping[str, object] = {}

__all__ = ["ANSWER_SECONDS", "PAGE_SIZE", "Client", "gather"]


class Client(Connection):
    """`url` is where the server listens, such as http://127.0.0.1:8787; `key` is sent as a bearer token."""

    change: str | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- jobs

    def create_job(self, document: Mapping[str, Any]) -> Document:
        return self._ask("POST", "/api/v1/jobs", body=document)

    def put_job(self, name: str, document: Mapping[str, Any]) -> Document:
        """Make the job of this name be this; `change` then says created, updated or unchanged."""
        return self._ask("PUT", f"/api/v1/jobs/by-name/{segment(name)}", body=document)

    def put_jobs(self, documents: Sequence[Mapping[str, Any]], owner: str | None = None) -> Document:
        """Make the jobs of these names be these, all or none; each item of the answer says what `change` it was."""
        filters = {"mode": "upsert", "owner": owner}
        return self._ask("POST", "/api/v1/jobs/batch", filters, body=documents)

    def patch_job(self, job: str, fields: Mapping[str, Any], revision: int | None = None) -> Document:
        """Change these fields, null meaning the default; refused unless the job is at this revision, if given."""
        headers = {} if revision is None else {"If-Match": f'"{revision}"'}
        return self._ask("PATCH", _job(job), body=fields, headers=headers)

    def list_jobs(self, **filters: object) -> Document:
        return self._ask("GET", "/api/v1/jobs", filters)

    def get_job(self, job: str) -> Document:
        return self._ask("GET", _job(job))

    def delete_job(self, job: str) -> Document:
        return self._ask("DELETE", _job(job))

    def pause_job(self, job: str, reason: str | None = None, **how: object) -> Document:
        """`how`: `until` when, and what becomes of the ticks of the pause, `on_resume`."""
        return self._ask("POST", f"{_job(job)}/pause", body=_given({"reason": reason, **how}))

    def resume_job(self, job: str, on_resume: str | None = None) -> Document:
        return self._ask("POST", f"{_job(job)}/resume", body=_given({"on_resume": on_resume}))

    def trigger_job(self, job: str, body: Mapping[str, Any] = NOTHING) -> Document:
        """Start a run now, beside the schedule, with its own `payload` if there is one in the body; returns the run."""
        return self._ask("POST", f"{_job(job)}/trigger", body=dict(body) or None)

    def skip_tick(self, job: str, at: str, reason: str | None = None) -> Document:
        return self._ask("POST", f"{_job(job)}/skip", body=_given({"at": at, "reason": reason}))

    def unskip_tick(self, job: str, at: str) -> None:
        self._ask("DELETE", f"{_job(job)}/skip", {"at": at})

    def cancel_runs(self, job: str) -> Document:
        """Cancel all runs of a job that are not over."""
        return self._ask("POST", f"{_job(job)}/cancel")

    def revisions(self, job: str, **filters: object) -> Document:
        return self._ask("GET", f"{_job(job)}/revisions", filters)

    def revision(self, job: str, number: int) -> Document:
        return self._ask("GET", f"{_job(job)}/revisions/{number}")

    def roll_back(self, job: str, number: int) -> Document:
        """Make a job what it was in this revision; `change` then says updated or unchanged."""
        return self._ask("POST", f"{_job(job)}/rollback", body={"revision": number})

    def ticks(self, job: str, **filters: object) -> Document:
        return self._ask("GET", f"{_job(job)}/ticks", filters)

    def explain(self, job: str, at: str) -> Document:
        return self._ask("GET", f"{_job(job)}/explain", {"at": at})

    def audit(self, **filters: object) -> Document:
        return self._ask("GET", "/api/v1/audit", filters)

    def retry_job(self, job: str) -> Document:
        """Run the latest finished run once more; returns the new run."""
        return self._ask("POST", f"{_job(job)}/retry")

    def backfill_job(self, job: str, wanted: Mapping[str, Any]) -> Document:
        """Let past ticks run, or with `dry_run` tell which they are."""
        return self._ask("POST", f"{_job(job)}/backfill", body=wanted)

    def catchup(self, job: str) -> Document:
        """What a job still has to make up for."""
        return self._ask("GET", f"{_job(job)}/catchup")

    def drop_catchup(self, job: str) -> Document:
        return self._ask("POST", f"{_job(job)}/catchup/drop")

    def job_runs(self, job: str, **filters: object) -> Document:
        return self._ask("GET", f"{_job(job)}/runs", filters)

    # -- runs

    def list_runs(self, **filters: object) -> Document:
        return self._ask("GET", "/api/v1/runs", filters)

    def get_run(self, run: str) -> Document:
        return self._ask("GET", _run(run))

    def cancel_run(self, run: str) -> Document:
        return self._ask("POST", f"{_run(run)}/cancel")

    def retry_run(self, run: str) -> Document:
        """Run a finished run once more; returns the new run."""
        return self._ask("POST", f"{_run(run)}/retry")

    def dead_letters(self, **filters: object) -> Document:
        return self._ask("GET", "/api/v1/dead-letters", filters)

    def dead_groups(self, **filters: object) -> Document:
        return self._ask("GET", "/api/v1/dead-letters/groups", filters)

    def redrive(self, which: Mapping[str, Any]) -> Document:
        """Bring dead runs back: `runs`, a list of ids, or those of a `job`, of a `group`, or all that there are."""
        return self._ask("POST", "/api/v1/dead-letters/redrive", body=which)

    def discard(self, which: Mapping[str, Any]) -> Document:
        """Deal with dead runs for good, named as for a re-drive."""
        return self._ask("POST", "/api/v1/dead-letters/discard", body=which)

    def list_incidents(self, **filters: object) -> Document:
        """Jobs that were not as expected."""
        return self._ask("GET", "/api/v1/incidents", filters)

    # -- many jobs

    def bulk(self, change: Mapping[str, Any]) -> Document:
        """One chunk of a change to all jobs that a search finds, or with `dry_run` their count."""
        return self._ask("POST", "/api/v1/bulk", body=change)

    # -- schedules and nodes

    def preview(self, document: Mapping[str, Any]) -> Document:
        """What a schedule means: words, next ticks, warnings."""
        return self._ask("POST", "/api/v1/schedules/preview", body=document)

    def cluster(self) -> Document:
        return self._ask("GET", "/api/v1/cluster")

    def pause_all(self, reason: str) -> Document:
        """Let no tick of any job fire until they are resumed."""
        return self._ask("POST", "/api/v1/cluster/pause", body={"reason": reason})

    def resume_all(self) -> Document:
        """Let ticks fire again."""
        return self._ask("POST", "/api/v1/cluster/resume")

    def drain_node(self, node: str, draining: bool) -> Document:
        """Ask a node to hand over and to take nothing new, or let it take part again; returns the node."""
        return self._ask("POST", f"/api/v1/cluster/nodes/{segment(node)}/{'drain' if draining else 'resume'}")

    def dismiss_node(self, node: str) -> Document:
        """Take note that a node was lost, so that it is no longer among the problems; returns the node."""
        return self._ask("POST", f"/api/v1/cluster/nodes/{segment(node)}/dismiss")

    # -- keys and tenants

    def create_key(self, document: Mapping[str, Any]) -> Document:
        """Make a key; its text, `key`, is told only here."""
        return self._ask("POST", "/api/v1/keys", body=document)

    def list_keys(self, **filters: object) -> Document:
        return self._ask("GET", "/api/v1/keys", filters)

    def revoke_key(self, key: str, tenant: str | None = None) -> None:
        self._ask("DELETE", f"/api/v1/keys/{segment(key)}", {"tenant": tenant})

    def create_tenant(self, name: str) -> Document:
        return self._ask("POST", "/api/v1/tenants", body={"name": name})

    def list_tenants(self, **filters: object) -> Document:
        return self._ask("GET", "/api/v1/tenants", filters)

    def get_tenant(self, name: str) -> Document:
        return self._ask("GET", f"/api/v1/tenants/{segment(name)}")

    def change_tenant(self, name: str, quotas: Mapping[str, Any]) -> Document:
        """Change these quotas, null meaning no limit."""
        return self._ask("PATCH", f"/api/v1/tenants/{segment(name)}", body=quotas)

    # -- queues

    def list_queues(self) -> Document:
        return self._ask("GET", "/api/v1/queues")

    def limit_queue(self, name: str, limits: Mapping[str, Any]) -> Document:
        """Set both limits of a queue, null meaning none."""
        return self._ask("PUT", f"/api/v1/queues/{segment(name)}", body=limits)

    # -- the server itself

    def version(self) -> Document:
        return self._ask("GET", "/version")

    def live(self) -> bool:
        return self.exchange("GET", "/livez", None).status == 200

    def ready(self) -> Document:
        """What `/readyz?verbose` says, ready or not."""
        return self.exchange("GET", "/readyz?verbose", None).document(self.server)

    # -- one call

    def _ask(
        self,
        method: str,
        path: str,
        filters: Mapping[str, object] = NOTHING,
        body: object = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Document:
        sent = None if body is None else encode(body)
        answer = self.exchange(method, with_query(path, filters), sent, headers=headers)
        self.change = answer.change
        if not answer.good:
            raise answer.refusal(self.server)
        return answer.document(self.server) if answer.raw else {}


def gather(fetch: Callable[..., Document], limit: int, cursor: str | None = None) -> Document:
    """One page of up to `limit` items, however many pages of the API it takes.

    `fetch` is a listing verb of the client that takes `limit` and `cursor`.
    """
    items: list[Document] = []
    while True:
        page = fetch(limit=min(limit - len(items), PAGE_SIZE), cursor=cursor)
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None or len(items) >= limit:
            return {"items": items, "next_cursor": cursor}


def _given(fields: Mapping[str, object]) -> dict[str, object] | None:
    return {name: value for name, value in fields.items() if value is not None} or None


def _job(job: str) -> str:
    return f"/api/v1/jobs/{segment(job)}"


def _run(run: str) -> str:
    return f"/api/v1/runs/{segment(run)}"
