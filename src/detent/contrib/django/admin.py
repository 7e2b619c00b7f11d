"""Runs in Django's admin: a list with filters, one run with its attempts and tracebacks, and the buttons to retry and
cancel it. detent's own use cases answer, which bound what a list may cost."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.views.decorators.http import require_POST
from msgspec import UNSET

from detent.contract.run import Run
from detent.contrib.django import registry
from detent.contrib.django.models import TaskRun
from detent.contrib.django.operations import owner_of, with_store
from detent.contrib.django.setup import detent_backends, discover
from detent.domain.identity import RunKey, decode_run_id, run_id
from detent.domain.states import FINAL, RunStatus
from detent.errors import DetentError
from detent.jobs import JobOperations
from detent.store import Store

PAGE = 50


@admin.register(TaskRun)
class TaskRunAdmin(admin.ModelAdmin):  # type: ignore[misc]  # Django has no types
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def get_urls(self) -> list[Any]:
        """The names of the list are those of any model: the admin's index links to it."""
        wrap = self.admin_site.admin_view
        return [
            path("", wrap(self.changelist_view), name="detent_taskrun_changelist"),
            path("<uuid:run>/", wrap(self.run_view), name="detent_taskrun_change"),
            path("<uuid:run>/<str:verb>/", wrap(require_POST(self.change_run)), name="detent_taskrun_verb"),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: object = None) -> HttpResponse:
        self._require(request, self.has_view_permission)
        backend = _backend(request)
        chosen = {name: request.GET.get(name, "") for name in ("task", "status")}
        page = {"backend": backend.alias, "backends": sorted(detent_backends()), "chosen": chosen}
        try:
            runs, following = with_store(backend, lambda store, tenant: _page(store, tenant, request.GET))
        except DetentError as error:
            return self._render(request, "runs", page | {"title": "Task runs", "problem": str(error)})
        return self._render(
            request,
            "runs",
            page
            | {
                "title": "Task runs",
                "runs": runs,
                "next": _link(request, after=str(run_id(following))) if following else None,
                "tasks": _names(backend, chosen["task"]),
                "statuses": [str(status) for status in RunStatus],
            },
        )

    def run_view(self, request: HttpRequest, run: UUID) -> HttpResponse:
        self._require(request, self.has_view_permission)
        backend = _backend(request)
        found = _ask(backend, run, lambda store, key, tenant: store.runs.get(key, tenant=tenant))
        if found is None:
            raise Http404(f"There is no run {run}.")
        page = {
            "title": f"{found.job}", "run": found, "payload": _shown(found.payload), "backend": backend.alias,
            "result": _shown(json.loads(bytes(found.result))), "finished": found.status in FINAL,
            "may_change": self.has_change_permission(request),
        }  # fmt: skip
        return self._render(request, "run", page)

    def change_run(self, request: HttpRequest, run: UUID, verb: str) -> HttpResponse:
        """Retry a finished run as a new one, or cancel an unfinished one."""
        self._require(request, self.has_change_permission)
        backend, shown = _backend(request), run
        actor = f"{owner_of(backend)} admin {request.user.get_username()}"
        try:
            if verb == "retry":
                again = _ask(backend, run, lambda s, key, t: JobOperations(s).runs.retry(key, tenant=t), actor)
                shown = run_id(again)
                messages.success(request, "The run is enqueued again, as this new run.")
            elif verb == "cancel":
                status = _ask(backend, run, lambda s, key, t: JobOperations(s).runs.cancel(key, tenant=t), actor)
                done = status is RunStatus.CANCELLED
                messages.success(request, "The run is cancelled." if done else "Its worker is asked to stop the run.")
            else:
                raise Http404(verb)
        except DetentError as error:
            messages.error(request, str(error))
        return HttpResponseRedirect(f"{reverse('admin:detent_taskrun_change', args=[shown])}?backend={backend.alias}")

    def _require(self, request: HttpRequest, permission: Callable[[HttpRequest], bool]) -> None:
        if not permission(request):
            raise PermissionDenied

    def _render(self, request: HttpRequest, template: str, page: dict[str, Any]) -> HttpResponse:
        common = self.admin_site.each_context(request) | {"opts": self.model._meta}
        return TemplateResponse(request, f"admin/detent/{template}.html", common | page)


def _backend(request: HttpRequest) -> Any:
    found = detent_backends()
    if not found:
        raise Http404("TASKS has no backend on detent.")
    alias = request.GET.get("backend") or next(iter(found))
    if alias not in found:
        raise Http404(f"TASKS has no backend {alias!r} on detent.")
    return found[alias]


def _names(backend: Any, chosen: str) -> list[str]:
    discover(backend)
    return sorted({*registry.tasks_of(backend.alias), *([chosen] if chosen else [])})


async def _page(store: Store, tenant: int, query: Any) -> tuple[list[Run], RunKey | None]:
    job = None
    if query.get("task"):
        row = await store.jobs.named(tenant, query["task"])
        if row is None:
            return [], None
        job = row["id"]
    status = [RunStatus(query["status"])] if query.get("status") in set(RunStatus) else []
    return await store.runs.list(job=job, status=status, after=_key(query.get("after")), limit=PAGE, tenant=tenant)


def _key(text: str | None) -> RunKey | None:
    try:
        return decode_run_id(UUID(text)) if text else None
    except ValueError:
        return None


def _ask(backend: Any, run: UUID, work: Callable[[Store, RunKey, int], Awaitable[Any]], actor: str = "") -> Any:
    key = decode_run_id(run)
    if key is None:
        raise Http404(f"There is no run {run}.")
    return with_store(backend, lambda store, tenant: work(store, key, tenant), actor)


def _link(request: HttpRequest, **changed: str) -> str:
    query = request.GET.copy()
    for name, value in changed.items():
        query[name] = value
    return f"?{query.urlencode()}"


def _shown(value: object) -> str:
    return "" if value is None or value is UNSET else json.dumps(value, indent=2, ensure_ascii=False)
