"""The dashboard's routes, on the application that also serves the API."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from detent.api import problems
from detent.api.context import Api
from detent.api.problems import Refusal
from detent.api.role_limits import admitted
from detent.dashboard import actions, views
from detent.dashboard.assets import Assets
from detent.dashboard.authentication import (
    Visitor,
    VisitorAuthenticator,
    login_path,
    safe_next,
    set_attempt_cookie,
    set_cookie,
)
from detent.dashboard.changes import LOGIN_BYTES, ChangeAnswer, Form, FormChange, read_form, text_of
from detent.dashboard.error_text import change_error_text, page_error_text
from detent.dashboard.formatting import iso
from detent.dashboard.heartbeat import DatabaseHeartbeat, DatabaseSilent, while_answering, within
from detent.dashboard.live import Hub, event
from detent.dashboard.page import PageRequest, PageView, names_of, query_of
from detent.dashboard.people import ATTEMPT_COOKIE, LoginUnavailable, RefusedLogin
from detent.dashboard.problems import AlarmCount
from detent.dashboard.rendering import environment, parts_of
from detent.dashboard.stream_limits import LimitedStream, StreamLimits
from detent.errors import DetentError, NotAuthorised
from detent.settings.readers import CALLBACK_PATH
from detent.store.audit_log import acting
from detent.store.db import OutcomeUnknown
from detent.telemetry.log import logger

log = logger("dashboard")

KEEPALIVE_SECONDS = 15.0
# How long a page may take before the server checks whether the database answers.
PAGE_SECONDS = 5.0
UNAVAILABLE = 503
# The last message of a stream whose visitor may no longer see the page: the browser reloads it and gets to the login.
SESSION_ENDED = event("ended", "Your session has ended: log in again.")
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


def add_dashboard(app: Starlette) -> Dashboard:
    """Add the pages to an application that `create_app` made."""
    dashboard = Dashboard(app.state.api)
    close_api = app.state.close

    async def close() -> None:
        await dashboard.hub.close()
        await close_api()

    app.router.routes.extend(dashboard.routes())
    app.state.close = close
    return dashboard


class Dashboard:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._assets = Assets()
        self._templates = environment(self._assets)
        self._authenticator = VisitorAuthenticator(api)
        self._alarms = AlarmCount()
        self._heartbeat = DatabaseHeartbeat(api.store.upkeep.now_within)
        self._limits = StreamLimits(api.settings.max_live_streams)
        self.hub = Hub(self._heartbeat, may_send=lambda: api.access.confirmed)

    def routes(self) -> list[Route]:
        made = [
            Route("/static/{name:path}", self._assets.serve),
            Route("/heartbeat", self._beat, methods=["GET"]),
            Route("/login", self._guarded(self._login_page), methods=["GET"]),
            Route("/login", self._guarded(self._log_in), methods=["POST"]),
            Route("/login/oidc", self._guarded(self._begin_login), methods=["GET"]),
            Route(CALLBACK_PATH, self._guarded(self._finish_login), methods=["GET"]),
            Route("/logout", self._guarded(self._log_out), methods=["POST"]),
        ]
        for view in views.ALL:
            made += [Route(view.path, self._guarded(partial(self._show, view)), methods=["GET"])]
            made += [Route(f"/live{view.path}", self._guarded(partial(self._follow, view)), methods=["GET"])]
        for change in actions.ALL:
            made.append(Route(change.path, self._guarded(partial(self._change, change)), methods=["POST"]))
        return made

    async def _beat(self, request: Request) -> Response:
        """The database's time, or 503 if it does not answer: for pages without a stream, or whose stream broke.
        Like /readyz it needs no key. Concurrent requests share one statement."""
        answered = await self._heartbeat.answer()
        if answered is None:
            return PlainTextResponse("Database not answering.", UNAVAILABLE, {**HEADERS, "Retry-After": "2"})
        return PlainTextResponse(iso(answered), 200, HEADERS)

    # --- pages ---

    async def _show(self, view: PageView, request: Request) -> Response:
        return await while_answering(self._heartbeat, PAGE_SECONDS, self._shown(view, request))

    async def _shown(self, view: PageView, request: Request) -> Response:
        page = await self._page(request)
        if page is None:
            return self._to_login(request)
        if page.limited and view.path == "/":
            return RedirectResponse("/jobs", 303, HEADERS)
        values = await self._values(view, page)
        return await asyncio.to_thread(partial(self._html, view.file, 200, **values))

    async def _follow(self, view: PageView, request: Request) -> Response:
        """A stream of the changes of a page."""
        path = request.scope["path"].removeprefix("/live") or "/"
        page = await within(PAGE_SECONDS, self._page(request, path=path))
        if page is None:
            return self._to_login(request)
        # Before the answer begins: afterwards the visitor would only see a stream that breaks.
        self._limits.check(page.visitor)
        self.hub.check()
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return LimitedStream(self._limits, page.visitor, self._updates(view, page), headers)

    async def _updates(self, view: PageView, page: PageRequest) -> AsyncGenerator[bytes, None]:
        with (
            self.hub.stream((view.name, *page.key), partial(self._parts, view, page)) as stream,
            self._api.access.watching(page.visitor.access, partial(stream.end, SESSION_ENDED)),
        ):
            yield b": hello\n\n"
            while True:
                try:
                    async with asyncio.timeout(KEEPALIVE_SECONDS):
                        sent = await stream.next()
                except TimeoutError:
                    sent = b": keepalive\n\n"
                if sent is None:
                    return
                yield sent

    async def _parts(self, view: PageView, page: PageRequest) -> Mapping[str, str]:
        page = dataclasses.replace(page, now=await self._api.store.upkeep.now())
        values = await self._values(view, page)
        # In a thread: a large page takes long to render, and the event loop also fires ticks.
        parts = await asyncio.to_thread(parts_of, self._templates.get_template(view.file), view.parts, values)
        return {**parts, "alarms": self._templates.get_template("alarms.html").render(alarms=values["alarms"])}

    async def _values(self, view: PageView, page: PageRequest) -> dict[str, Any]:
        with admitted(page.visitor.caller, "read", view.path):
            values = {**self._frame(view, page), **await view.load(page)}
            if "alarms" not in values:
                values["alarms"] = "" if page.limited else await self._alarms.of(page)
        return values

    async def _page(self, request: Request, path: str | None = None) -> PageRequest | None:
        visitor = await self._authenticator.visitor(request)
        if visitor is None:
            return None
        visitor.caller.check("read")
        api = dataclasses.replace(self._api, caller=visitor.caller)
        names, now = names_of(request), await self._api.store.upkeep.now()
        return PageRequest(api, visitor, path or request.scope["path"], query_of(request), names, now)

    def _frame(self, view: PageView, page: PageRequest) -> dict[str, Any]:
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
            "limited": page.limited,
            "may_operate": visitor.may("operate"),
            "may_write": visitor.may("write"),
            "may_admin": visitor.may("admin"),
        }

    # --- changes ---

    async def _change(self, change: FormChange, request: Request) -> Response:
        await self._heartbeat.require()  # or a hanging database would make the change later, when it answers again
        visitor = await within(PAGE_SECONDS, self._authenticator.visitor(request))
        if visitor is None:
            return self._to_login(request)
        form = await read_form(request, change.max_bytes(self._api))
        await self._authenticator.permit(request, visitor, text_of(form, "csrf"), change.scope, change.path)
        api = dataclasses.replace(self._api, caller=visitor.caller)
        with admitted(visitor.caller, change.scope, change.path), acting(self._authenticator.actor(visitor, request)):
            answer = await self._apply(change.apply(api, names_of(request), form))
        if change.modifies:
            self._alarms.reset()
            self.hub.wake()
        return self._answer(answer)

    async def _apply(self, work: Coroutine[Any, Any, ChangeAnswer]) -> ChangeAnswer:
        """A change may take long while the database answers heartbeats; if it stops, the outcome is unknown."""
        try:
            return await while_answering(self._heartbeat, PAGE_SECONDS, work)
        except DatabaseSilent as error:
            raise OutcomeUnknown("the database stopped answering while a change was made") from error

    def _check(self, request: Request, visitor: Visitor, form: Form) -> None:
        self._authenticator.check_change(request, visitor, text_of(form, "csrf"))

    def _answer(self, answer: ChangeAnswer) -> Response:
        if answer.redirect is not None:
            return Response(status_code=204, headers={**HEADERS, "HX-Redirect": answer.redirect})
        if answer.template is None:
            return self._html("toast.html", 200, {"HX-Reswap": "none"}, kind="good", text=answer.message)
        return self._html(answer.template, 200, **answer.values)

    # --- login and logout ---

    async def _login_page(self, request: Request) -> Response:
        if await within(PAGE_SECONDS, self._authenticator.visitor(request)) is not None:
            return RedirectResponse(safe_next(request.query_params.get("next")), 303, HEADERS)
        return self._login_form(200, safe_next(request.query_params.get("next")))

    async def _log_in(self, request: Request) -> Response:
        form = await read_form(request, LOGIN_BYTES)
        key, next_path = text_of(form, "key"), safe_next(text_of(form, "next"))
        try:
            token = await within(PAGE_SECONDS, self._authenticator.log_in(key, request))
        except NotAuthorised as error:
            return self._login_form(403, next_path, error.message)
        if token is None:
            wrong = "The key is not valid: it is mistyped, expired, revoked or from another server."
            return self._login_form(401, next_path, wrong)
        response = RedirectResponse(next_path, 303, HEADERS)
        set_cookie(response, request, token)
        return response

    async def _begin_login(self, request: Request) -> Response:
        """Send the browser to the OpenID provider."""
        people, next_path = self._authenticator.people, safe_next(request.query_params.get("next"))
        if people is None:
            return self._login_form(404, next_path, "No login provider is set here: log in with a key.")
        try:
            address, cookie = await people.begin(next_path, request.query_params.get("tenant", ""))
        except LoginUnavailable as error:
            return self._login_form(UNAVAILABLE, next_path, error.message)
        response = RedirectResponse(address, 303, HEADERS)
        set_attempt_cookie(response, request, cookie)
        return response

    async def _finish_login(self, request: Request) -> Response:
        """The OpenID provider has sent the browser back."""
        people, cookie = self._authenticator.people, request.cookies.get(ATTEMPT_COOKIE, "")
        if people is None:
            return self._login_form(404, "/", "No login provider is set here: log in with a key.")
        actor = self._authenticator.attempt_actor(request)
        try:
            token, next_path = await people.finish(cookie, query_of(request), actor)
        except (RefusedLogin, LoginUnavailable) as error:
            response: Response = self._login_form(problems.kind_of(error).status, "/", error.message)
        else:
            response = self._onward(safe_next(next_path))
            set_cookie(response, request, token)
        set_attempt_cookie(response, request, None)
        return response

    def _login_form(self, status: int, next_path: str, wrong: str | None = None) -> Response:
        people = self._authenticator.people is not None
        return self._html("login.html", status, next=next_path, wrong=wrong, people=people)

    def _onward(self, address: str) -> Response:
        """A page that leads on. Not a redirect: the browser would not send the session's cookie after one that began
        at another site, and would not follow one to another site after a form."""
        return self._html("onward.html", 200, address=address)

    async def _log_out(self, request: Request) -> Response:
        visitor, elsewhere = await within(PAGE_SECONDS, self._authenticator.visitor(request)), None
        if visitor is not None:
            self._check(request, visitor, await read_form(request, LOGIN_BYTES))
            elsewhere = await within(PAGE_SECONDS, self._authenticator.log_out(visitor, request))
        response = RedirectResponse("/login", 303, HEADERS) if elsewhere is None else self._onward(elsewhere)
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
                return self._refused(request, error.kind.status, error.detail, error.headers)
            except DetentError as error:
                return self._failed(request, error)
            except Exception as error:
                trace = problems.trace_of(request.headers)
                log.error("page failed", path=request.scope["path"], trace_id=trace, exc_info=error)
                text = f"Internal server error. See the server's log for trace id {trace}."
                return self._refused(request, 500, text)

        return guarded

    def _failed(self, request: Request, error: DetentError) -> Response:
        """A sentence for the visitor; details for the operator go to the log."""
        changing, status = request.method == "POST", problems.kind_of(error).status
        text = change_error_text(error) if changing else page_error_text(error)
        if text != error.message:
            log.warning("page not served", path=request.scope["path"], error=str(error))
        if status == UNAVAILABLE and not changing and "hx-request" not in request.headers:
            return self._html("unavailable.html", status, {"Retry-After": "2"}, text=text)
        return self._refused(request, status, text)

    def _refused(self, request: Request, status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
        if "hx-request" in request.headers:
            return self._html("toast.html", status, {"HX-Reswap": "none", **(headers or {})}, kind="bad", text=text)
        return self._html("refused.html", status, headers, code=status, text=text)
