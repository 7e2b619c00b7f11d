"""The dashboard's routes on the application that also serves the API."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from detent.api import problems
from detent.api.context import Api
from detent.api.problems import Refusal
from detent.dashboard import actions, views
from detent.dashboard.assets import Assets
from detent.dashboard.changes import Answer, Change, Form, form_of, text_of
from detent.dashboard.entrance import Entrance, Visitor, login_path, safe_next, set_cookie
from detent.dashboard.faults import plain_words, words_about_a_change
from detent.dashboard.heartbeat import DatabaseSilent, Heartbeat, while_answering, within
from detent.dashboard.live import Hub
from detent.dashboard.page import Page, View, names_of
from detent.dashboard.problems import Alarms
from detent.dashboard.rendering import environment, parts_of
from detent.dashboard.words import iso
from detent.errors import DetentError, NotAuthorised
from detent.runtime.clock import monotonic
from detent.store.db import OutcomeUnknown
from detent.telemetry.log import logger

log = logger("dashboard")

STILL_HERE_SECONDS = 15.0
# How long a page may take before the database is asked whether it answers at all.
PAGE_SECONDS = 5.0
UNAVAILABLE = 503
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Handler = Callable[[Request], Awaitable[Response]]


def add_dashboard(app: Starlette) -> None:
    """Pages beside the API of an application that `create_app` made."""
    dashboard = Dashboard(app.state.api)
    close_api = app.state.close

    async def close() -> None:
        await dashboard.hub.close()
        await close_api()

    app.router.routes.extend(dashboard.routes())
    app.state.close = close


class Dashboard:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._assets = Assets()
        self._templates = environment(self._assets)
        self._entrance = Entrance(api)
        self._alarms = Alarms()
        self._heartbeat = Heartbeat(api.store.upkeep.now_within)
        self.hub = Hub(self._heartbeat)

    def routes(self) -> list[Route]:
        made = [
            Route("/static/{name:path}", self._assets.serve),
            Route("/heartbeat", self._beat, methods=["GET"]),
            Route("/login", self._guarded(self._login_page), methods=["GET"]),
            Route("/login", self._guarded(self._log_in), methods=["POST"]),
            Route("/logout", self._guarded(self._log_out), methods=["POST"]),
        ]
        for view in views.ALL:
            made += [Route(view.path, self._guarded(partial(self._show, view)), methods=["GET"])]
            made += [Route(f"/live{view.path}", self._guarded(partial(self._follow, view)), methods=["GET"])]
        for change in actions.ALL:
            made.append(Route(change.path, self._guarded(partial(self._change, change)), methods=["POST"]))
        return made

    async def _beat(self, request: Request) -> Response:
        """The database's time, or 503 where it does not answer: for pages that have no stream, or whose stream broke.
        Like /readyz it needs no key, and is answered from one statement however many ask."""
        answered = await self._heartbeat.answer()
        if answered is None:
            return PlainTextResponse("Database not answering.", UNAVAILABLE, {**HEADERS, "Retry-After": "2"})
        return PlainTextResponse(iso(answered), 200, HEADERS)

    # --- pages ---

    async def _show(self, view: View, request: Request) -> Response:
        return await while_answering(self._heartbeat, PAGE_SECONDS, self._shown(view, request))

    async def _shown(self, view: View, request: Request) -> Response:
        page = await self._page(request)
        if page is None:
            return self._to_login(request)
        values = await self._values(view, page)
        return await asyncio.to_thread(partial(self._html, view.file, 200, **values))

    async def _follow(self, view: View, request: Request) -> Response:
        """A stream of what changes on a page."""
        path = request.scope["path"].removeprefix("/live") or "/"
        page = await within(PAGE_SECONDS, self._page(request, path=path))
        if page is None:
            return self._to_login(request)
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(self._updates(view, page, request), 200, headers, media_type="text/event-stream")

    async def _updates(self, view: View, page: Page, request: Request) -> AsyncIterator[bytes]:
        with self.hub.stream((view.name, *page.key), partial(self._parts, view, page)) as stream:
            yield b": hello\n\n"
            checked = monotonic()
            while True:
                try:
                    async with asyncio.timeout(STILL_HERE_SECONDS):
                        told = await stream.next()
                except TimeoutError:
                    told = b": still here\n\n"
                if monotonic() - checked >= STILL_HERE_SECONDS:  # however often something is sent
                    checked = monotonic()
                    if not await self._may_go_on(request):
                        return
                if told is None:
                    return
                yield told

    async def _may_go_on(self, request: Request) -> bool:
        """Whether who follows a page may still see it. Without an answer of the database there is nothing to send."""
        try:
            return await within(PAGE_SECONDS, self._entrance.visitor(request)) is not None
        except DetentError:
            return True

    async def _parts(self, view: View, page: Page) -> Mapping[str, str]:
        page = dataclasses.replace(page, now=await self._api.store.upkeep.now())
        values = await self._values(view, page)
        # In a thread: a large page takes a while, and this loop also fires.
        parts = await asyncio.to_thread(parts_of, self._templates.get_template(view.file), view.parts, values)
        return {**parts, "alarms": self._templates.get_template("alarms.html").render(alarms=values["alarms"])}

    async def _values(self, view: View, page: Page) -> dict[str, Any]:
        values = {**self._frame(view, page), **await view.look(page)}
        if "alarms" not in values:
            values["alarms"] = await self._alarms.of(page)
        return values

    async def _page(self, request: Request, path: str | None = None) -> Page | None:
        visitor = await self._entrance.visitor(request)
        if visitor is None:
            return None
        visitor.caller.check("read")
        api = dataclasses.replace(self._api, caller=visitor.caller)
        names, now = names_of(request), await self._api.store.upkeep.now()
        return Page(api, visitor, path or request.scope["path"], dict(request.query_params), names, now)

    def _frame(self, view: View, page: Page) -> dict[str, Any]:
        visitor = page.visitor
        query = f"?{urlencode(page.query)}" if page.query else ""
        return {
            "view": view.name,
            "page": page,
            "now": page.now,
            "here": page.path + query,
            "live": f"/live{page.path}{query}" if view.parts else None,
            "csrf": visitor.csrf,
            "who": None if visitor.session is None else visitor.caller,
            "may_operate": visitor.may("operate"),
            "may_write": visitor.may("write"),
            "may_admin": visitor.may("admin"),
        }

    # --- changes ---

    async def _change(self, change: Change, request: Request) -> Response:
        await self._heartbeat.require()  # nothing is sent to a database that hangs, and carried out when it goes on
        visitor = await within(PAGE_SECONDS, self._entrance.visitor(request))
        if visitor is None:
            return self._to_login(request)
        form = await form_of(request, self._api)
        self._check(request, visitor, form)
        visitor.caller.check(change.scope)
        api = dataclasses.replace(self._api, caller=visitor.caller)
        answer = await self._made(change.make(api, names_of(request), form))
        if change.changes:
            self._alarms.forget()
            self.hub.wake()
        return self._answer(answer)

    async def _made(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """A change may take as long as the database answers at all; after that nobody knows whether it was made."""
        try:
            return await while_answering(self._heartbeat, PAGE_SECONDS, work)
        except DatabaseSilent as error:
            raise OutcomeUnknown("the database stopped answering while a change was made") from error

    def _check(self, request: Request, visitor: Visitor, form: Form) -> None:
        self._entrance.check_change(request, visitor, text_of(form, "csrf"))

    def _answer(self, answer: Answer) -> Response:
        if answer.go_to is not None:
            return Response(status_code=204, headers={**HEADERS, "HX-Redirect": answer.go_to})
        if answer.template is None:
            return self._html("toast.html", 200, {"HX-Reswap": "none"}, kind="good", text=answer.said)
        return self._html(answer.template, 200, **answer.values, said=answer.said)

    # --- coming and going ---

    async def _login_page(self, request: Request) -> Response:
        if await within(PAGE_SECONDS, self._entrance.visitor(request)) is not None:
            return RedirectResponse(safe_next(request.query_params.get("next")), 303, HEADERS)
        return self._html("login.html", 200, next=safe_next(request.query_params.get("next")), wrong=None)

    async def _log_in(self, request: Request) -> Response:
        form = await form_of(request, self._api)
        key, following = text_of(form, "key"), safe_next(text_of(form, "next"))
        address = request.client.host if request.client else ""
        try:
            token = await within(PAGE_SECONDS, self._entrance.log_in(key, address))
        except NotAuthorised as error:
            return self._html("login.html", 403, next=following, wrong=error.message)
        if token is None:
            wrong = "This key is not taken: it is mistyped, expired, revoked or not of this server."
            return self._html("login.html", 401, next=following, wrong=wrong)
        response = RedirectResponse(following, 303, HEADERS)
        set_cookie(response, request, token)
        return response

    async def _log_out(self, request: Request) -> Response:
        visitor = await within(PAGE_SECONDS, self._entrance.visitor(request))
        if visitor is not None:
            self._check(request, visitor, await form_of(request, self._api))
            await within(PAGE_SECONDS, self._entrance.log_out(visitor))
        response = RedirectResponse("/login", 303, HEADERS)
        set_cookie(response, request, None)
        return response

    def _to_login(self, request: Request) -> Response:
        path = login_path(request)
        if "hx-request" in request.headers:
            where = "/login" if request.scope["path"].startswith("/live") or request.method != "GET" else path
            return Response(status_code=401, headers={**HEADERS, "HX-Redirect": where})
        return RedirectResponse(path, 303, HEADERS)

    # --- answers ---

    def _html(self, template: str, status: int, headers: Mapping[str, str] | None = None, **values: Any) -> Response:
        text = self._templates.get_template(template).render(**values)
        return HTMLResponse(text, status, {**HEADERS, **(headers or {})})

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except Refusal as error:
                return self._refused(request, error.kind.status, error.detail)
            except DetentError as error:
                return self._failed(request, error)
            except Exception as error:
                trace = problems.trace_of(request.headers)
                log.error("page failed", path=request.scope["path"], trace_id=trace, exc_info=error)
                told = f"Something went wrong inside the server: its log has the details under the trace id {trace}."
                return self._refused(request, 500, told)

        return guarded

    def _failed(self, request: Request, error: DetentError) -> Response:
        """In words for people; what only helps who runs the server is in its log."""
        changing, status = request.method == "POST", problems.kind_of(error).status
        text = words_about_a_change(error) if changing else plain_words(error)
        if text != error.message:
            log.warning("page not served", path=request.scope["path"], error=str(error))
        if status == UNAVAILABLE and not changing and "hx-request" not in request.headers:
            return self._html("unavailable.html", status, {"Retry-After": "2"}, text=text)
        return self._refused(request, status, text)

    def _refused(self, request: Request, status: int, text: str) -> Response:
        if "hx-request" in request.headers:
            return self._html("toast.html", status, {"HX-Reswap": "none"}, kind="bad", text=text)
        return self._html("refused.html", status, code=status, text=text)
