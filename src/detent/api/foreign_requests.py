"""Requests as other schedulers, and articles about them, write them: answered with the request to send here.

`POST /jobs` with a `cron_expression` and a `handler_url` changes nothing. The answer is a problem whose `translation`
has method, path and body of the same request for this server. The dashboard has its pages under `/jobs`: a request is
taken for one of an API only if it is not one that a browser sends for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, compile_path
from starlette.types import Scope

from detent.api import problems
from detent.api.auth import ANONYMOUS
from detent.api.context import PREFIX, Api
from detent.api.foreign_bodies import JOBS, refused_as
from detent.api.problems import Refusal, TranslatedRequest
from detent.api.request_parsing import read_body
from detent.domain.foreign_job import UntranslatedJob, is_foreign, native_fault, translate_job
from detent.errors import UsageError
from detent.runtime.arithmetic import compute

OTHER_PREFIX = re.compile(r"(?:/api)?(?:/v[0-9]{1,2})?(?=/(?:jobs|runs|queues|schedules)(?:/|$))")
PAGE = re.compile(r"/(?:jobs|runs)(?:/[^/]*(?:/edit)?)?")
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
MAX_BODY_BYTES = 65_536
ANY_OTHER = "/jobs of another API"


class ForeignRoute(Route):
    """Matches what would be a request of the API under its own prefix."""

    def __init__(self, api: Api, endpoints: Iterable[tuple[str, str]]) -> None:
        super().__init__("/{path:path}", self._serve, include_in_schema=False)
        self.methods = None  # a function would have GET only
        self._api = api
        self._known = [(method, compile_path(path)[0]) for method, path in endpoints]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or self._path(scope) is None or _is_of_a_page(scope):
            return Match.NONE, {}
        return Match.FULL, {"endpoint": self.endpoint, "path_params": {}}

    def _path(self, scope: Scope) -> str | None:
        """The path of the same request here."""
        found = OTHER_PREFIX.match(scope["path"])
        if found is None or found[0] == PREFIX:
            return None
        path = PREFIX + scope["path"][found.end() :].rstrip("/")
        asked = "GET" if scope["method"] == "HEAD" else scope["method"]
        return path if any(asked == method and known.match(path) for method, known in self._known) else None

    async def _serve(self, request: Request) -> Response:
        request_id = problems.trace_of(request.headers)
        try:
            await self._api.authenticator.identify(request, "read")
            raise await self._refusal(request)
        except Exception as error:
            actor = self._api.authenticator.actor(ANONYMOUS, request, request_id)
            await self._api.refusals.note(error, actor, None, f"{request.method} {ANY_OTHER}")
            return problems.answer(error, request.headers, request_id)

    async def _refusal(self, request: Request) -> Refusal:
        path = self._path(request.scope) or PREFIX
        try:
            raw, words, kept = await read_body(request, self._api.max_body_bytes), "", ""
            if (request.method, path) == ("POST", JOBS):
                document, words = await compute(_translated, _document(raw), datetime.now(UTC))
            else:
                document, kept = _unchanged(raw)
        except UsageError as fault:
            sentence = f"The API is not at {request.scope['path']}: send {request.method} {path}. {fault.message}"
            return Refusal(404, "not-found", sentence)
        query = request.url.query
        translation = TranslatedRequest(request.method, f"{path}?{query}" if query else path, document)
        sentence = f"The API is not at {request.scope['path']}{words}; send the request in translation{kept}."
        return Refusal(404, "not-found", sentence, translation=translation)


def _is_of_a_page(scope: Scope) -> bool:
    """Whether a browser sends it for the dashboard: a form, or a page that is asked for without naming JSON."""
    headers = Headers(scope=scope)
    if not scope["path"].startswith(("/jobs", "/runs")):
        return False
    if scope["method"] == "POST":
        return headers.get("content-type", "").partition(";")[0].strip().lower() in FORMS
    if scope["method"] not in ("GET", "HEAD") or PAGE.fullmatch(scope["path"]) is None:
        return False
    wants = headers.get("accept", "")
    return "text/html" in wants or ("json" not in wants and "authorization" not in headers)


def _document(raw: bytes) -> Any:
    """The body as JSON; None if it is empty."""
    if len(raw) > MAX_BODY_BYTES:
        raise UsageError(f"The body has more than {MAX_BODY_BYTES:,} bytes, so it is not translated.")
    try:
        return msgspec.json.decode(raw) if raw.strip() else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UsageError("The body is not JSON: send a JSON object.") from None


def _unchanged(raw: bytes) -> tuple[Any, str]:
    """The body, if it is JSON, and what to do with it otherwise: some take lines or bytes."""
    try:
        return _document(raw), ""
    except UsageError:
        return None, ", with its body as it is"


def _translated(document: object, now: datetime) -> tuple[Any, str]:
    """The job to send, and what is other in it; raises UsageError if no document would be accepted."""
    if not is_foreign(document):
        if (fault := native_fault(document, now)) is not None:
            raise UsageError(f"The body has no translation: {fault.message}")
        return document, ""
    found = translate_job(cast("dict[str, Any]", document), now)
    if isinstance(found, UntranslatedJob):
        renamed = f"The job is in the words of another scheduler: {found.renamed}. " if found.renamed else ""
        raise UsageError(renamed + refused_as(found.fault))
    return found.document, f": {found.words}"
