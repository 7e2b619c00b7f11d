"""The page Changes: who changed what, for administrators; and what logins and refusals on pages leave in the log."""

from __future__ import annotations

from typing import Any

import pytest

from detent.contract.key import KeyScope
from tests.dashboard.pages import Pages

JOB = {"schedule": "every 1h", "target": {"type": "http", "url": "http://127.0.0.1:9/"}}


async def log_in(pages: Pages, scope: KeyScope = "admin", name: str = "ada") -> str:
    """The CSRF token of a page, after a login."""
    key = await pages.store.keys.add(scope, tenant=1, name=name)
    assert (await pages.post("/login", key=key.key)).status == 303
    return (await pages.get("/")).csrf


async def create(pages: Pages, name: str) -> None:
    async with pages.session.post(f"{pages.url}/api/v1/jobs", json={"name": name, **JOB}) as answer:
        assert answer.status == 201, await answer.text()


async def events(sql: Any) -> list[tuple[str, str, str | None]]:
    rows = await sql.fetch("SELECT action, actor_kind, actor_name FROM audit_events ORDER BY id")
    return [(row["action"], row["actor_kind"], row["actor_name"]) for row in rows]


async def test_the_page_shows_who_changed_what(pages: Pages) -> None:
    await create(pages, "report")
    csrf = (await pages.get("/jobs")).csrf
    job = await pages.store.jobs.id_of("report")
    assert (await pages.post(f"/jobs/{job}/pause", csrf, reason="moving")).status == 200
    shown = (await pages.get("/changes")).text
    assert shown.index("job.pause") < shown.index("job.create")
    assert f'<a href="/jobs/{job}">report</a>' in shown
    assert "<del>active</del> <ins>paused</ins>" in shown and "<ins>moving</ins>" in shown
    assert "local, no key" in shown and "127.0.0.1" in shown


async def test_the_page_is_searched(pages: Pages) -> None:
    for name in ("alpha", "beta"):
        await create(pages, name)
    found = (await pages.get("/changes?search=object:alpha")).text
    assert ">alpha</a>" in found and ">beta</a>" not in found
    assert "No matching changes" in (await pages.get("/changes?search=action:key.revoke")).text
    assert "action:…" in (await pages.get("/changes?search=colour:red")).text


async def test_what_people_wrote_is_escaped(pages: Pages) -> None:
    await create(pages, "<script>alert(1)</script>")
    shown = (await pages.get("/changes")).text
    assert "<script>alert" not in shown and "&lt;script&gt;alert(1)" in shown


@pytest.mark.parametrize("scope", ["read", "write"])
async def test_others_than_administrators_neither_see_the_page_nor_its_link(guarded: Pages, scope: KeyScope) -> None:
    await log_in(guarded, scope)
    assert (await guarded.get("/changes")).status == 403
    assert 'href="/changes"' not in (await guarded.get("/")).text


async def test_an_administrator_of_a_tenant_sees_its_events_only(guarded: Pages) -> None:
    await guarded.store.tenants.add("acme")
    number = await guarded.store.tenants.number("acme")
    assert number is not None
    await guarded.store.keys.add("read", tenant=1, name="of-the-default-tenant")
    key = await guarded.store.keys.add("admin", tenant=number, name="of-acme")
    assert (await guarded.post("/login", key=key.key)).status == 303
    for path in ("/changes", "/changes?tenants=all"):
        shown = (await guarded.get(path)).text
        assert "of-acme" in shown and "of-the-default-tenant" not in shown


async def test_logins_logouts_and_failed_logins_leave_events(guarded: Pages, sql: Any) -> None:
    csrf = await log_in(guarded)
    assert (await guarded.post("/logout", csrf)).status == 303
    assert (await guarded.post("/login", key="dtn_wrong")).status == 401
    assert await events(sql) == [
        ("key.create", "detent", "detent"),
        ("session.open", "key", "ada"),
        ("session.close", "key", "ada"),
        ("session.refuse", "unknown", None),
    ]


async def test_a_change_that_a_visitor_may_not_make_leaves_an_event(guarded: Pages, sql: Any) -> None:
    csrf = await log_in(guarded, "read", "reader")
    assert (await guarded.post("/jobs/bulk", csrf, action="pause")).status == 403
    assert (await events(sql))[-1] == ("request.refuse", "key", "reader")
    assert await sql.fetchval("SELECT object_name FROM audit_events ORDER BY id DESC") == "POST /jobs/bulk"
