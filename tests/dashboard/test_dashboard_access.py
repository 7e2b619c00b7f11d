"""Login, rights, CSRF protection and security headers of the dashboard."""

from __future__ import annotations

from typing import Any

import pytest

from detent.contract.key import KeyScope
from detent.dashboard.authentication import safe_next
from detent.jobs import JobOperations
from detent.store.jobs import DEFAULT_TENANT
from tests.dashboard.pages import Pages

VIEWS = (
    *("/", "/jobs", "/jobs/new", "/runs", "/timeline", "/dead-letters", "/cluster", "/cluster/problems"),
    "/changes",
)
JOB = {"name": "report", "kind": "every", "every": "1h", "target": "http", "url": "http://127.0.0.1:9/"}


async def log_in(pages: Pages, scope: KeyScope, tenant: int = DEFAULT_TENANT) -> str:
    """Log in with a new key and return the CSRF token."""
    key = await pages.store.keys.add(scope, tenant=tenant, name="a key")
    answer = await pages.post("/login", key=key.key, next="/jobs")
    assert answer.status == 303, answer.text
    assert answer.headers["Location"] == "/jobs"
    return (await pages.get("/")).csrf


async def test_every_page_has_strict_security_headers(pages: Pages) -> None:
    for view in VIEWS:
        shown = await pages.get(view)
        assert shown.status == 200
        policy = shown.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert shown.headers["X-Content-Type-Options"] == "nosniff"
        assert shown.headers["X-Frame-Options"] == "DENY"
        assert shown.headers["Cache-Control"] == "no-store"
        assert " style=" not in shown.text
        assert "<script>" not in shown.text


async def test_a_missing_page_says_what_was_not_found(pages: Pages) -> None:
    shown = await pages.get("/jobs/no-such-job")
    assert shown.status == 404
    assert "There is no job" in shown.text


async def test_a_change_without_a_csrf_token_is_refused(pages: Pages) -> None:
    token = (await pages.get("/")).csrf
    assert (await pages.post("/jobs", **JOB)).status == 403
    assert (await pages.post("/jobs", csrf="0" * 64, **JOB)).status == 403
    made = await pages.post("/jobs", csrf=token, **JOB)
    assert made.status == 204, made.text
    assert made.headers["HX-Redirect"].startswith("/jobs/")


async def test_a_form_of_another_site_cannot_change_anything(pages: Pages) -> None:
    token = (await pages.get("/")).csrf
    headers = {"Origin": "http://evil.example", "X-CSRF-Token": token}
    async with pages.session.post(f"{pages.url}/jobs", data=JOB, headers=headers) as response:
        assert response.status == 403
    assert (await pages.store.jobs.list())[0] == []


async def test_a_server_with_keys_redirects_to_the_login(guarded: Pages) -> None:
    shown = await guarded.get("/jobs?search=tag%3Ax")
    assert shown.status == 303
    assert shown.headers["Location"] == "/login?next=/jobs%3Fsearch%3Dtag%3Ax"
    stream = await guarded.get("/live/jobs", headers={"HX-Request": "true"})
    assert (stream.status, stream.headers["HX-Redirect"]) == (401, "/login")
    assert (await guarded.get("/login")).status == 200


async def test_a_wrong_key_is_refused_and_sets_no_cookie(guarded: Pages) -> None:
    answer = await guarded.post("/login", key=f"dtn_{'a' * 10}_{'a' * 52}", next="/")
    assert answer.status == 401
    assert "Set-Cookie" not in answer.headers
    assert "not valid" in answer.text


async def test_a_worker_key_cannot_log_in(guarded: Pages) -> None:
    key = await guarded.store.keys.add("work", tenant=DEFAULT_TENANT)
    assert (await guarded.post("/login", key=key.key, next="/")).status == 403


async def test_the_cookie_is_not_the_key_and_no_script_can_read_it(guarded: Pages) -> None:
    key = await guarded.store.keys.add("admin", tenant=DEFAULT_TENANT)
    answer = await guarded.post("/login", key=key.key, next="https://evil.example/")
    assert answer.headers["Location"] == "/"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert key.key not in cookie
    assert (await guarded.get("/")).status == 200


async def test_a_read_key_sees_no_buttons_and_changes_nothing(guarded: Pages) -> None:
    token = await log_in(guarded, "read")
    (job,) = await JobOperations(guarded.store).registration.add([_spec()], tenant=DEFAULT_TENANT)
    for path in ("/jobs", f"/jobs/{job.id}", "/cluster", "/dead-letters"):
        shown = await guarded.get(path)
        assert shown.status == 200
        assert "hx-post" not in shown.text, path
    assert (await guarded.post(f"/jobs/{job.id}/pause", csrf=token)).status == 403
    assert (await guarded.post("/jobs", csrf=token, **JOB)).status == 403
    assert (await guarded.post("/jobs/bulk", csrf=token, action="delete", sure="yes")).status == 403
    found = await guarded.store.jobs.get(job.id)
    assert found is not None
    assert found.status == "active"


async def test_an_operate_key_may_pause_but_not_delete(guarded: Pages) -> None:
    token = await log_in(guarded, "operate")
    (job,) = await JobOperations(guarded.store).registration.add([_spec()], tenant=DEFAULT_TENANT)
    assert (await guarded.post(f"/jobs/{job.id}/pause", csrf=token, reason="why not")).status == 200
    assert (await guarded.post(f"/jobs/{job.id}/delete", csrf=token)).status == 403
    assert (await guarded.post("/jobs/bulk", csrf=token, action="delete", sure="yes", search="name:*")).status == 403


async def test_logging_out_ends_the_session_on_the_server(guarded: Pages, sql: Any) -> None:
    token = await log_in(guarded, "admin")
    assert await sql.fetchval("SELECT count(*) FROM sessions") == 1
    async with guarded.session.post(f"{guarded.url}/logout", data={"csrf": token}, allow_redirects=False) as response:
        assert response.status == 303
    assert await sql.fetchval("SELECT count(*) FROM sessions") == 0
    assert (await guarded.get("/")).status == 303


async def test_a_session_ends_with_its_key(guarded: Pages) -> None:
    await log_in(guarded, "admin")
    ((key,), _) = await guarded.store.keys.list(tenant=DEFAULT_TENANT)
    await guarded.store.keys.revoke(key.id, tenant=DEFAULT_TENANT)
    assert (await guarded.get("/")).status == 303


async def test_a_tenant_sees_nothing_of_another(guarded: Pages) -> None:
    (job,) = await JobOperations(guarded.store).registration.add([_spec("secret-job")], tenant=DEFAULT_TENANT)
    await guarded.store.tenants.add("acme")
    number = await guarded.store.tenants.number("acme")
    assert number is not None
    await log_in(guarded, "admin", number)
    for path in ("/", "/jobs", "/timeline", "/runs", "/dead-letters", "/cluster"):
        assert "secret-job" not in (await guarded.get(path)).text, path
    assert (await guarded.get(f"/jobs/{job.id}")).status == 404
    assert "There is no job" in await guarded.stream(f"/jobs/{job.id}")
    assert "secret-job" not in await guarded.stream("/jobs")


@pytest.mark.parametrize(
    "text", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "", None]
)
def test_a_login_never_redirects_to_another_server(text: str | None) -> None:
    assert safe_next(text) == "/"


def test_a_login_returns_to_the_requested_page() -> None:
    assert safe_next("/jobs?search=a") == "/jobs?search=a"


def _spec(name: str = "report") -> Any:
    from detent.domain.registration import read_document

    target = {"type": "http", "url": "http://127.0.0.1:9/"}
    return read_document({"name": name, "schedule": "every 1h", "target": target})


def test_every_advised_command_exists() -> None:
    from detent.cli.root import root
    from detent.dashboard.problems import ADVICE

    for kind, advice in ADVICE.items():
        program, *words = advice.command.split()
        if program != "detent":
            continue
        group: Any = root
        for word in words:
            if word.startswith("-") or not hasattr(group, "commands"):
                break
            assert word in group.commands, f"{kind}: {advice.command}"
            group = group.commands[word]
