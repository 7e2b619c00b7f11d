"""A small server that speaks the API's contract over real sockets, and lets a test decide what comes back.

It keeps jobs and runs in dicts, refuses as the API refuses, and remembers every request it was sent.
"""

from __future__ import annotations

import json
import threading
import uuid
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

Document = dict[str, Any]

DEFAULTS: Document = {
    "timezone": "UTC",
    "payload": None,
    "queue": "default",
    "priority": 5,
    "paused_reason": None,
    "paused_by": None,
    "paused_until": None,
    "on_resume": None,
    "tags": [],
    "owner": None,
    "timeout_seconds": 300,
    "max_retries": 3,
    "retry_backoff": "exponential",
    "retry_base_seconds": 2,
    "retry_max_seconds": 3600,
    "missed_window": "RUN_ONCE",
    "misfire_grace_seconds": "auto",
    "concurrent_policy": "SKIP",
    "max_concurrent": 10,
    "delivery": "at_least_once",
    "jitter_seconds": 0,
    "dst_gap": "run",
    "dst_overlap": "first",
    "day_match": None,
    "dialect": "unix",
    "starts_at": None,
    "ends_at": None,
    "max_runs": None,
    "allow_past": False,
    "auto_pause_after": None,
    "expect_start_within": None,
    "expect_finish_within": None,
    "notify_after": 1,
    "notify_url": None,
    "signing": None,
    "concurrency_key": None,
    "concurrency_limit": None,
    "concurrency_rate": None,
    "concurrency_scope": "job",
    "notify_format": "webhook",
    "max_missed": 100,
    "no_retry_on": [],
    "retry_on": [],
    "retry_delays": {},
    "dead_letter_topic": None,
    "payload_schema": None,
    "release": "exact",
    "tzdata_policy": "recompute",
    "skipped_ticks": [],
    "collect_after": 604800,
    "idempotency_key_template": None,
    "warnings": [],
}


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any
    port: int


class Answer(NamedTuple):
    status: int
    body: bytes
    kind: str = "application/json"
    hang_up: bool = False
    change: str = ""


def stamp(seconds_from_now: float) -> str:
    instant = datetime.now(UTC) + timedelta(seconds=seconds_from_now)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def problem(status: int, detail: str, pointer: str | None = None) -> Answer:
    document = {
        "type": "about:blank",
        "title": "Refused",
        "status": status,
        "detail": detail,
        "trace_id": "0af7651916cd",
    }
    if pointer is not None:
        document["pointer"] = pointer
    return Answer(status, json.dumps(document).encode(), "application/problem+json")


def good(document: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(document).encode())


class ContractServer:
    def __init__(self) -> None:
        self.jobs: dict[str, Document] = {}
        self.runs: dict[str, Document] = {}
        self.requests: list[Request] = []
        self.answers: list[Answer] = []  # given first, whatever is asked
        self.after_looks: dict[str, list[str]] = {}  # run id: its status at each further look
        self.next_trigger: Document | None = None  # the run that the next trigger makes
        self._asked = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ContractServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait_for_requests(self, number: int) -> None:
        with self._asked:
            assert self._asked.wait_for(lambda: len(self.requests) >= number, timeout=60)

    # -- what it holds

    def add_job(self, name: str, **fields: Any) -> Document:
        job = {
            "id": str(uuid.uuid4()),
            "name": name,
            "schedule": {"cron": "*/5 * * * *"},
            "description": "Every 5 minutes",
            "target": {"type": "http", "url": "http://127.0.0.1:9/", "method": "POST", "headers": {}},
            **DEFAULTS,
            "status": "active",
            "next_run_at": stamp(12.9),
            "last_run_at": None,
            "last_status": None,
            "revision": 1,
            "created_at": stamp(-60),
            "updated_at": stamp(-60),
            **fields,
        }
        self.jobs[job["id"]] = job
        return job

    def add_run(self, job: Document, status: str, **fields: Any) -> Document:
        over = status not in ("pending", "running", "retrying")
        run = {
            "id": str(uuid.uuid4()),
            "job_id": job["id"],
            "job": job["name"],
            "scheduled_at": stamp(-180),
            "status": status,
            "reason": None,
            "attempt": 1,
            "token": 4194305,
            "started_at": stamp(-180),
            "finished_at": stamp(-178.5) if over else None,
            "duration_ms": 1500 if over else None,
            "lateness_ms": 4,
            "node": "00000000000000aa",
            "result": None,
            "error": None,
            "idempotency_key": f"{job['id']}:1",
            "ticks": None,
            "until": None,
            "payload": None,
            "concurrency_key": None,
            "not_before": None,
            "waiting_for": None,
            "progress": None,
            "attempts": [],
            "steps": [],
            **fields,
        }
        self.runs[run["id"]] = run
        return run

    # -- how it answers

    def answer(self, request: Request) -> Answer:
        if self.answers:
            return self.answers.pop(0)
        match [request.method, *request.path.strip("/").split("/")]:
            case ["GET", "version"]:
                return good({"version": "9.9.9"})
            case ["GET", "livez"]:
                return good({"status": "ok"})
            case ["GET", "readyz"]:
                check = {"ok": True, "why": "It answers.", "needed": True}
                return good({"status": "ready", "checks": {"database": check}})
            case ["POST", "api", "v1", "jobs"]:
                return self._create(request.body)
            case ["GET", "api", "v1", "jobs"]:
                return self._page(list(self.jobs.values()), request.query)
            case ["PUT", "api", "v1", "jobs", "by-name", name]:
                return self._put(unquote(name), request.body)
            case [method, "api", "v1", "jobs", reference, *action]:
                return self._job(method, unquote(reference), action, request.query)
            case ["GET", "api", "v1", "runs"]:
                return self._page(list(self.runs.values()), request.query)
            case [method, "api", "v1", "runs", reference, *action]:
                return self._run(method, unquote(reference), action)
        return problem(404, "There is nothing here.")

    def _create(self, body: Document) -> Answer:
        if body.get("name") and self._found(self.jobs, body["name"]):
            return problem(409, f"A job named {body['name']!r} exists already: choose another name.", "/name")
        if body["schedule"] == {"cron": "61 * * * *"}:
            return problem(422, "The minute 61 is out of range: give 0 to 59.", "/schedule/cron")
        return good(self.add_job(**{"name": "job-1", **body}), 201)

    def _put(self, name: str, body: Document) -> Answer:
        job = self._found(self.jobs, name)
        if job is not None:
            return good(job)._replace(change="unchanged")
        return good(self.add_job(**{**body, "name": name}), 201)._replace(change="created")

    def _job(self, method: str, reference: str, action: list[str], query: dict[str, list[str]]) -> Answer:
        job = self._found(self.jobs, reference)
        if job is None:
            return problem(404, f"There is no job {reference!r}.")
        match [method, *action]:
            case ["DELETE"]:
                del self.jobs[job["id"]]
                return Answer(204, b"")
            case ["POST", "pause"]:
                job |= {"status": "paused", "next_run_at": None}
            case ["POST", "resume"]:
                job |= {"status": "active", "next_run_at": stamp(12.9)}
            case ["POST", "trigger"]:
                made = self.next_trigger or self.add_run(job, "pending", started_at=None, lateness_ms=None)
                return good(made, 201)
            case ["GET", "runs"]:
                return self._page([run for run in self.runs.values() if run["job_id"] == job["id"]], query)
        return good(job)

    def _run(self, method: str, reference: str, action: list[str]) -> Answer:
        run = self.runs.get(reference)
        if run is None:
            return problem(404, f"There is no run {reference!r}.")
        if action == ["cancel"]:
            if run["status"] not in ("pending", "running", "retrying"):
                return problem(409, f"The run is over: it {run['status']}.")
            run["status"] = "cancelled"
        looks = self.after_looks.get(reference)
        if looks:
            run["status"] = looks.pop(0)
        return good(run)

    def _found(self, things: dict[str, Document], reference: str) -> Document | None:
        return things.get(reference) or next((t for t in things.values() if t["name"] == reference), None)

    def _page(self, items: list[Document], query: dict[str, list[str]]) -> Answer:
        if "status" in query:
            items = [item for item in items if item["status"] in query["status"]]
        first, limit = int(query.get("cursor", ["0"])[0]), int(query.get("limit", ["50"])[0])
        last = first + min(limit, 500)
        return good({"items": items[first:last], "next_cursor": str(last) if last < len(items) else None})

    # -- sockets

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def serve(self) -> None:
                parts = urlsplit(self.path)
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(
                    self.command,
                    parts.path,
                    parse_qs(parts.query),
                    dict(self.headers.items()),
                    json.loads(raw) if raw else None,
                    self.client_address[1],
                )
                with server._asked:
                    server.requests.append(request)
                    server._asked.notify_all()
                answer = server.answer(request)
                if answer.status:
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.kind)
                    self.send_header("Content-Length", str(len(answer.body)))
                    if answer.change:
                        self.send_header("Detent-Change", answer.change)
                    self.end_headers()
                    self.wfile.write(answer.body)
                self.close_connection = answer.hang_up

            do_GET = do_POST = do_PUT = do_DELETE = serve  # noqa: N815 - named by http.server

            def log_message(self, *_: object) -> None:
                pass

        return Handler
