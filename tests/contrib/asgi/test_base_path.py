"""The path of a mount: taken from requests, and put before the paths of answers."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from detent.contrib.asgi.base_path import BasePath

PAGE = """<a href="/jobs">jobs</a><form action="/login"><button hx-post="/jobs/bulk" hx-vals='{"a": "href=\\"/x"}'>
<meta http-equiv="refresh" content="0; url=/next"><div hx-sse:connect="/live/"></div><tr data-href="/runs/1">
<a href="https://example.com/">out</a><a href="//example.com/">out</a>
<input value="/etc" data-pointer="/name"><p>href=&#34;/</p>"""


async def tell(request: Request) -> Response:
    names = ("path", "root_path", "raw_path")
    return JSONResponse({name: str(request.scope[name]) for name in names})


async def page(request: Request) -> Response:
    response = HTMLResponse(PAGE)
    response.set_cookie("session", "1", path="/")
    response.set_cookie("attempt", "1", path="/login")
    return response


async def onward(request: Request) -> Response:
    return RedirectResponse("/jobs", 303, {"HX-Redirect": "/runs"})


async def away(request: Request) -> Response:
    return RedirectResponse("https://example.com/jobs", 303)


async def stream(request: Request) -> Response:
    async def lines() -> Any:
        yield b': hello\n\ndata: <a href="/jobs">\n\n'
        yield b'data: <a href="/runs">\n\n'

    return StreamingResponse(lines(), media_type="text/event-stream")


class Mounted:
    """Litestar wants annotations that it can read here."""

    def __init__(self) -> None:
        routes = [Route(f"/{each.__name__}", each) for each in (page, onward, away, stream)]
        self._app = BasePath(Starlette(routes=[*routes, Route("/{rest:path}", tell)]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def in_starlette() -> ASGIApp:
    return Starlette(routes=[Mount("/a b", routes=[Mount("/detent", Mounted())])])


def in_litestar() -> ASGIApp:
    app: ASGIApp = Litestar([asgi("/a b/detent", is_mount=True, copy_scope=True)(Mounted())])  # type: ignore[assignment] # its own types of ASGI
    return app


async def answer(app: ASGIApp, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
        return await client.get(path)


@pytest.fixture(params=[in_starlette, in_litestar])
def app(request: pytest.FixtureRequest) -> ASGIApp:
    made: ASGIApp = request.param()
    return made


async def test_requests_lose_the_path_of_the_mount_and_keep_their_escapes(app: ASGIApp) -> None:
    found = (await answer(app, "/a%20b/detent/jobs/x%2Fy")).json()
    assert found["raw_path"] == "b'/jobs/x%2Fy'"
    assert found["root_path"] == ""
    assert found["path"] == "/jobs/x/y"


async def test_a_path_that_begins_like_the_mount_loses_it_once(app: ASGIApp) -> None:
    found = (await answer(app, "/a%20b/detent/a%20b/detent/x")).json()
    assert found["raw_path"] == "b'/a%20b/detent/x'"


async def test_links_of_a_page_lead_into_the_mount_and_nothing_else_changes(app: ASGIApp) -> None:
    found = await answer(app, "/a%20b/detent/page")
    expected = re.sub(r'(href|action|hx-post|connect)="/(?!/)', r'\1="/a%20b/detent/', PAGE)
    assert found.text == expected.replace("url=/next", "url=/a%20b/detent/next")
    assert int(found.headers["content-length"]) == len(found.content)


async def test_cookies_and_redirects_stay_in_the_mount(app: ASGIApp) -> None:
    cookies = (await answer(app, "/a%20b/detent/page")).headers.get_list("set-cookie")
    assert [re.findall(r"path=([^;]*)", each.lower())[0] for each in cookies] == [
        "/a%20b/detent/",
        "/a%20b/detent/login",
    ]
    onward = await answer(app, "/a%20b/detent/onward")
    assert (onward.headers["location"], onward.headers["hx-redirect"]) == ("/a%20b/detent/jobs", "/a%20b/detent/runs")
    assert (await answer(app, "/a%20b/detent/away")).headers["location"] == "https://example.com/jobs"


async def test_live_updates_lead_into_the_mount(app: ASGIApp) -> None:
    found = await answer(app, "/a%20b/detent/stream")
    assert re.findall(r'href="([^"]*)"', found.text) == ["/a%20b/detent/jobs", "/a%20b/detent/runs"]


async def test_an_application_that_is_not_mounted_is_left_alone() -> None:
    app = Mounted()
    assert (await answer(app, "/page")).text == PAGE
    assert (await answer(app, "/jobs/x%2Fy")).json()["raw_path"] == "b'/jobs/x%2Fy'"
