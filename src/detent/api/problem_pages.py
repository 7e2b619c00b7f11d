"""A paragraph about each kind of problem: what it means and what to do. `type` of a problem is the path of its page.

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

A request that is not served is answered with a problem (RFC 9457, `application/problem+json`). Its `detail` says what
was read and how to put it right, `pointer` where in the request that is, and `trace_id` finds it in the server's log.
Its `type` is one of the paths below, which every server also answers with the same text; `type` and `status` do not
change, so programs may tell problems apart by them.
"""

TEXTS: dict[str, tuple[int, str]] = {
    "malformed-json": (
        400,
        "The body is not JSON, or is empty where one is needed. Half of a surrogate pair, bytes that are not "
        "UTF-8 and a second document behind the first are no JSON either. Check how the body is made; nothing was "
        "read from it.",
    ),
    "malformed-request": (
        400,
        "A part of the request that belongs to HTTP cannot be read: the header `If-Match`, `If-None-Match` or "
        "`Idempotency-Key`, or the connection ended before the body did. The detail names the header and its "
        "form.",
    ),
    "not-authenticated": (
        401,
        "The server asks for a key and there is none, or the one there is is mistyped, expired, revoked or of "
        "another server. Send `Authorization: Bearer dtn_…`, or set `DETENT_API_KEY` for the command line. A "
        "server that listens on loopback only asks for none.",
    ),
    "not-authorised": (
        403,
        "The key is good, but its scope is too small for this. The detail names the scope that is needed; `detent "
        "key create --scope …` makes such a key.",
    ),
    "cross-origin": (
        403,
        "A change came from a web page of another origin, which a server without keys does not take: any page in "
        "your browser could send it. Send changes from a program, or from pages of this server.",
    ),
    "not-found": (
        404,
        "There is no such job, run or key, or no such path. What belongs to another tenant is not found either. A "
        "job that was deleted is not found by its name; its runs still are, by the job's id.",
    ),
    "method-not-allowed": (
        405,
        "The path is right and the method is not. The header `Allow` has those that the path takes.",
    ),
    "body-too-slow": (
        408,
        "The body did not arrive in time: half a minute, and a second more for each megabyte that was announced. "
        "Send it again over a better connection, or in parts.",
    ),
    "conflict": (
        409,
        "The request is right in itself, but not as things are: the name is taken, the run is already finished, "
        "the job is completed, its lanes are all in use. The detail says which; look at the thing, then decide. "
        "For a batch, `errors` points at every item.",
    ),
    "quota-reached": (
        409,
        "The tenant has as many jobs as it may have: `used` of `limit`. Delete what is no longer needed, or ask an "
        "administrator of the server to raise the quota with `detent tenant quota NAME --jobs N`. Nothing was "
        "registered. Limits of runs refuse nothing: what is beyond them waits.",
    ),
    "stale": (
        409,
        "The run was taken from this worker, because its lease ended or it was cancelled, and somebody else has "
        "it now. The report is kept with the run as `stale` and changes nothing. Give the run up; its new holder "
        "finishes it.",
    ),
    "request-under-way": (
        409,
        "A request with the same `Idempotency-Key` is being served at this moment. Wait as long as `Retry-After` "
        "says and send the same request again: the answer will be that of the first.",
    ),
    "revision-mismatch": (
        412,
        "The change names a revision in `If-Match`, and the job is at another by now: `revision` and the header "
        "`ETag` tell which. Somebody changed it after you looked. Look at it again, then make your change to what "
        "is there.",
    ),
    "body-too-large": (
        413,
        "The body is larger than the server takes: the setting `max_payload_bytes` and a little more, or 64 MiB "
        "for a batch. Keep large data elsewhere and send a reference to it; send a batch in parts.",
    ),
    "unsupported-media-type": (
        415,
        "The body must be declared as what it is: `Content-Type: application/json`, in UTF-8, or also "
        "`application/x-ndjson` for a batch.",
    ),
    "wrong-host": (
        421,
        "A server that listens on loopback only answers only to `localhost` and its addresses, so that a web page "
        "that gives its own name to your machine's address reaches nothing. Use http://localhost or "
        "http://127.0.0.1.",
    ),
    "invalid": (
        422,
        "A field or a parameter is missing, not known, of the wrong type or out of bounds; `pointer` says which. "
        "Text with a NUL character cannot be stored and is refused wherever it stands.",
    ),
    "bad-schedule": (
        422,
        "The schedule, its time zone or its bounds cannot be used: a field of a cron expression is wrong, a date "
        "comes in no year, the zone is not known, there is no tick left. `POST /schedules/preview` and `detent "
        "cron explain` tell what a schedule means without making a job.",
    ),
    "bad-target": (
        422,
        "The target cannot be called as it is written: a URL without a host or with a scheme other than http and "
        "https, a header that detent sets itself, a function that is no name, an empty command.",
    ),
    "bad-payload": (
        422,
        "The payload is larger than the setting `max_payload_bytes` or the tenant's quota, nested deeper than 64 "
        "levels, or holds what cannot be stored. Keep the data elsewhere and send a reference to it.",
    ),
    "bad-cursor": (
        422,
        "A cursor goes on with the list that gave it out, under the same filters. With other filters, or made up, "
        "it is refused. Leave it out to start anew.",
    ),
    "many-faults": (
        422,
        "Jobs of a batch are wrong, so none of them was registered. `errors` has each fault with its pointer, "
        "which begins with the place of the job in the batch, counted from 0; at most a hundred are told.",
    ),
    "idempotency-key-reused": (
        422,
        "This `Idempotency-Key` was used for another request within the last 24 hours. A key belongs to one "
        "request: make a new one for each, and send the same body, path and query when you send a request again.",
    ),
    "too-many-requests": (
        429,
        "The caller asks faster than the setting `requests_per_second` allows. Wait as long as `Retry-After` "
        "says; a batch or a larger `limit` needs fewer requests.",
    ),
    "internal": (
        500,
        "Something went wrong inside the server that should not have. Its log has the whole story under the "
        "`trace_id`; please report it.",
    ),
    "outcome-unknown": (
        503,
        "The database did not answer in time, so the change may have been made or not. Look before you send it "
        "again, or send it again with the same `Idempotency-Key`, which makes it happen once in either case.",
    ),
    "unavailable": (
        503,
        "The database cannot be reached or cannot serve this now. Nothing was changed. Wait as long as "
        "`Retry-After` says and try again; `/readyz?verbose` tells what the server is missing.",
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
        unknown = Refusal(404, "not-found", f"There is no problem {slug!r}: {PAGES} tells those there are.")
        return problems.answer(unknown, request.headers)
    return PlainTextResponse(page(slug), media_type="text/markdown")


async def show_all(request: Request) -> Response:
    return PlainTextResponse(manual(), media_type="text/markdown")


if __name__ == "__main__":
    sys.stdout.write(manual())
