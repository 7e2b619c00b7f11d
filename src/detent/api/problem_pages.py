"""A paragraph about each kind of problem: what it means and what to do. The `type` of a problem is the path of its
page.

    python -m detent.api.problem_pages

writes all of them as one page of the manual, docs/problems.md.
"""

from __future__ import annotations

import sys

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from detent.api import problems
from detent.api.problems import PAGES, Refusal

INTRODUCTION = """# Problems

A request that fails is answered with a problem (RFC 9457, `application/problem+json`). Its `detail` says what was read
and
how to correct it, `pointer` names the wrong part of the request, and `trace_id` finds it in the server's log. Its
`type` is
one of the paths below, and every server serves the same text there. `type` and `status` are stable: programs may use
them to
distinguish problems.
"""

TEXTS: dict[str, tuple[int, str]] = {
    "malformed-json": (
        400,
        "The body is not JSON, or is empty where one is required. Lone surrogates, bytes that are not UTF-8 and a "
        "second document after the first are not JSON either. Check the code that writes the body; nothing was "
        "changed.",
    ),
    "malformed-request": (
        400,
        "A part of the request that belongs to HTTP cannot be read: the request line, a header such as `If-Match`, "
        "`If-None-Match` or `Idempotency-Key`, or the connection ended before the body did. The detail names the "
        "part and its form.",
    ),
    "not-authenticated": (
        401,
        "The request has no key, or one that is mistyped, expired, revoked or of another server. Send "
        "`Authorization: Bearer dtn_…`; for the command line set `DETENT_API_KEY`, or use a context with a key file. "
        "A request needs no key only while the cluster has none, not even a revoked one, and if it comes from the "
        "server's own machine without the header of a proxy (`Forwarded`, `X-Forwarded-…`, `X-Real-IP`, `Via`). "
        "`detent key create --local --scope admin` creates a key without a server.",
    ),
    "not-authorised": (
        403,
        "The key is valid, but its scope does not allow this. The detail names the scope that is needed; `detent "
        "key create --scope …` creates such a key.",
    ),
    "tenant-suspended": (
        403,
        "An administrator of the cluster has suspended the tenant of this key: none of its ticks fires, and its "
        "requests are refused until `detent tenant resume NAME`. The key stays valid. Ticks of the suspension are "
        "recorded as skipped and do not run later.",
    ),
    "cross-origin": (
        403,
        "A change came from a web page of another origin, which is refused with and without a key: any page in your "
        "browser could send it. Send changes from a program, or from pages of this server. Behind a proxy, let it "
        "pass on the header `Host`.",
    ),
    "own-call": (
        403,
        "The request is a call of an HTTP job, a notice or a ping of a detent node, recognised by its header "
        "`Detent-Call`. No server of a cluster answers such calls: otherwise a key that may only create jobs could use "
        "the API from inside your network. Call the API from a handler or another program, with a key.",
    ),
    "not-found": (
        404,
        "There is no such job, run or key, or no such path. What belongs to another tenant is not found either. A "
        "job that was deleted is not found by its name; its runs still are, by the job's id.",
    ),
    "method-not-allowed": (
        405,
        "The path exists, but not with this method. The header `Allow` lists the methods of the path.",
    ),
    "body-too-slow": (
        408,
        "The body did not arrive in time: the setting `request_body_seconds`, and one more second for each announced "
        "megabyte. Send it again over a better connection, or in parts.",
    ),
    "headers-too-slow": (
        408,
        "The headers did not arrive within the setting `request_header_seconds`, counted from the connection or from "
        "the first byte of the request. Send the request again, over a better connection.",
    ),
    "conflict": (
        409,
        "The request is valid, but conflicts with the current state: the name is taken, the run is already "
        "finished, the job is completed, or it has its maximum of unfinished runs. The detail says which. For a "
        "batch, `errors` points at every item.",
    ),
    "quota-reached": (
        409,
        "The tenant has reached its quota of jobs: `used` of `limit`. Delete jobs, or ask an administrator of the "
        "server to raise the quota with `detent tenant quota NAME --jobs N`. Nothing was registered. Limits of "
        "runs refuse nothing: runs beyond them wait.",
    ),
    "stale": (
        409,
        "This worker lost the run, because its lease ended or the run was cancelled, and another worker may have "
        "it now. The report is kept with the run as `stale` and changes nothing. Stop working on the run; its new "
        "worker finishes it.",
    ),
    "request-under-way": (
        409,
        "A request with the same `Idempotency-Key` is in progress. Wait as long as `Retry-After` says and send the "
        "same request again: it gets the answer of the first.",
    ),
    "revision-mismatch": (
        412,
        "The change names a revision in `If-Match`, but the job is at another one, which `revision` and the header "
        "`ETag` show: it was changed after you read it. Read it again, then apply your change to that.",
    ),
    "body-too-large": (
        413,
        "The body is larger than the server accepts: the setting `max_payload_bytes` and 64 KiB more, or 64 MiB "
        "for a batch. A login may have 16 KiB, and no body may be larger than the setting "
        "`max_request_memory_bytes`. Store large data elsewhere and send a reference to it; send a batch in parts.",
    ),
    "uri-too-long": (
        414,
        "The path and the query are longer than 16 KiB. Send a shorter query, or a request that has a body.",
    ),
    "unsupported-media-type": (
        415,
        "The header `Content-Type` must be `application/json`, in UTF-8, or `application/x-ndjson` for a batch.",
    ),
    "wrong-host": (
        421,
        "While the cluster has no key, a server answers only to `localhost` and its addresses. That protects it from "
        "web pages that point their own name at your machine. Use http://localhost or http://127.0.0.1, or create a "
        "key: then every request needs one, and any name is answered.",
    ),
    "invalid": (
        422,
        "A field or a parameter is missing, unknown, of the wrong type or out of bounds; `pointer` says which. "
        "Text with a NUL character cannot be stored and is refused everywhere.",
    ),
    "bad-schedule": (
        422,
        "The schedule, its time zone or its bounds cannot be used: a field of a cron expression is wrong, no year "
        "has the date, the zone is unknown, or no tick is left. `POST /schedules/preview` and `detent cron "
        "explain` show what a schedule means without creating a job.",
    ),
    "costly-schedule": (
        422,
        "Computing the ticks of this schedule takes more steps than a request may use. A step is a year, month, week, "
        "day or tick that is examined, so the same request always gets the same answer. Rules whose days almost never "
        "come cost most: use fewer BY parts or a cron expression, ask for fewer ticks or a shorter range, or send a "
        "batch in parts. In a batch each such job is listed in `errors`.",
    ),
    "bad-target": (
        422,
        "The target cannot be called as it is written: a URL without a host or with a scheme other than http and "
        "https, a header that detent sets itself, a function that is not a name, an empty command.",
    ),
    "bad-payload": (
        422,
        "The payload is larger than the setting `max_payload_bytes` or the tenant's quota, nested deeper than 64 "
        "levels, or holds values that cannot be stored. Store the data elsewhere and send a reference to it.",
    ),
    "bad-cursor": (
        422,
        "A cursor continues the list that returned it, with the same filters. Other cursors are refused. Leave it "
        "out to start from the beginning.",
    ),
    "many-faults": (
        422,
        "Jobs of a batch are wrong, so none of them was registered. `errors` has each fault with its pointer, "
        "which begins with the position of the job in the batch, counted from 0; at most a hundred are listed.",
    ),
    "idempotency-key-reused": (
        422,
        "This `Idempotency-Key` was used for another request within the last 24 hours. A key belongs to one "
        "request: make a new one for each, and send the same body, path and query when you send a request again.",
    ),
    "too-many-requests": (
        429,
        "The tenant sends more requests than the setting `requests_per_second` allows, has as many live pages or "
        "waiting claims open on this server as it may, or too many keys that are not valid came from this network. "
        "Wait as long as `Retry-After` says; a batch or a larger `limit` needs fewer requests.",
    ),
    "headers-too-large": (
        431,
        "The request line and the headers are larger than the setting `max_header_bytes`, or there are more than a "
        "hundred headers. Cookies of other programs under the same host name are a common cause. Send fewer of them.",
    ),
    "internal": (
        500,
        "An unexpected error inside the server. Its log has the details under the `trace_id`; please report it.",
    ),
    "busy": (
        503,
        "The server has as many connections as the setting `max_connections` allows (one address may hold half of "
        "them, a proxy in `trusted_proxies` all), or holds as many bytes of request bodies as "
        "`max_request_memory_bytes` allows. Nothing was changed. "
        "Wait as long as `Retry-After` says and try again. `/livez` and `/readyz` are always answered.",
    ),
    "outcome-unknown": (
        503,
        "The database did not answer in time, so the change may or may not have been made. Check before you send "
        "it again, or send it again with the same `Idempotency-Key`: then it happens once in either case.",
    ),
    "unavailable": (
        503,
        "The database cannot be reached or cannot serve this now. Nothing was changed. Wait as long as "
        "`Retry-After` says and try again; `/readyz?verbose` shows what is wrong.",
    ),
}


def page(slug: str) -> str:
    status, text = TEXTS[slug]
    return f"## {problems.ProblemKind(status, slug).title}\n\n`{PAGES}/{slug}`, status {status}. {text}\n"


def manual() -> str:
    return "\n".join([INTRODUCTION, *(page(slug) for slug in TEXTS)])


async def show(request: Request) -> Response:
    slug = request.path_params["slug"]
    if slug not in TEXTS:
        unknown = Refusal(404, "not-found", f"There is no problem {slug!r}: {PAGES} lists them all.")
        return problems.answer(unknown, request.headers)
    return PlainTextResponse(page(slug), media_type="text/markdown")


async def show_all(request: Request) -> Response:
    return PlainTextResponse(manual(), media_type="text/markdown")


if __name__ == "__main__":
    sys.stdout.write(manual())
