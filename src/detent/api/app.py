"""The application: routes, errors and guards put together."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from detent.api import (
    alert_rules,
    audit_events,
    backfills,
    batch,
    bulk,
    cluster,
    cluster_pause,
    dead_letters,
    health,
    incidents,
    jobs,
    keys,
    ledger,
    lifecycle,
    openapi,
    preview,
    problem_pages,
    problems,
    pull,
    queues,
    role_bindings,
    run_logs,
    runs,
    secrets,
    tasks,
    tenant_lifecycle,
    tenants,
)
from detent.api.access_watch import AccessWatch
from detent.api.auth import KeyAuthenticator
from detent.api.callbacks import CallbackAuthenticator
from detent.api.client_addresses import ClientAddresses
from detent.api.context import Api, Readiness
from detent.api.failed_lookups import FailedLookups
from detent.api.foreign_requests import ForeignRoute
from detent.api.guard import OriginGuard
from detent.api.limits import TenantLimiter
from detent.api.log_streams import LogStreams
from detent.api.own_calls import OwnCallGuard
from detent.api.problems import PAGES, Refusal
from detent.api.pull_waiters import PullWaiters
from detent.api.refusals import RefusalRecorder
from detent.api.request_rules import RequestRules
from detent.api.routing import JSON_HEADERS, Endpoint, starlette_routes
from detent.cluster.operations import ClusterOperations
from detent.domain.secret_keys import read_master_keys
from detent.jobs import JobOperations
from detent.jobs.secrets import SecretCommands
from detent.runtime.envelope import MasterKeys
from detent.settings.settings import Settings
from detent.store import Store
from detent.store.db import PoolName
from detent.telemetry.metrics import Metrics
from detent.worker.callbacks import CallbackKeys
from detent.worker.pull import PulledRuns
from detent.worker.secrets import PooledSecrets, SecretValues

PARTS = (
    *(
        health,
        ledger,
        batch,
        bulk,
        jobs,
        backfills,
        lifecycle,
        runs,
        run_logs,
        tasks,
        dead_letters,
        incidents,
        preview,
        cluster,
        cluster_pause,
        pull,
        queues,
    ),
    *(keys, role_bindings, tenants, tenant_lifecycle, secrets, alert_rules, audit_events),
)


def create_app(store: Store, *, settings: Settings, readiness: Readiness, metrics: Metrics) -> Starlette:
    use_cases = JobOperations(store, settings.max_payload_bytes)
    authenticator = KeyAuthenticator(
        store.keys,
        TenantLimiter(store.request_budgets, settings.requests_per_second, rules=RequestRules(store.tenants)),
        FailedLookups(settings.failed_keys_per_second),
        keys_required=settings.keys_required,
        clients=ClientAddresses(settings.trusted_proxies),
    )
    access = AccessWatch(store.web_sessions)
    waiters = PullWaiters(store, max_waiting=max(1, settings.max_connections // 4))
    pulled = PulledRuns(store, use_cases, metrics)
    master = MasterKeys(read_master_keys(settings.secret_key))
    api = Api(
        store,
        use_cases,
        ClusterOperations(store),
        settings,
        readiness,
        authenticator,
        access,
        waiters,
        pulled,
        SecretCommands(store, master),
        SecretValues(PooledSecrets(store.secrets, PoolName.PULL), master),
        RefusalRecorder(store.audit_log),
        LogStreams(store, access, settings.max_live_streams),
        CallbackAuthenticator(CallbackKeys(store, PoolName.PULL), authenticator),
    )
    endpoints = all_endpoints()
    described = msgspec.json.encode(openapi.document(endpoints))

    async def describe(request: Request) -> Response:
        return Response(described, headers=JSON_HEADERS, media_type="application/json")

    app = Starlette(
        routes=[
            *starlette_routes(api, endpoints),
            Route("/openapi.json", describe),
            health.metrics_route(metrics),
            Route(PAGES, problem_pages.show_all),
            Route(f"{PAGES}/{{slug}}", problem_pages.show),
            ForeignRoute(api, [(each.method, each.path) for each in endpoints]),
        ],
        middleware=[Middleware(OwnCallGuard), Middleware(OriginGuard, keys_needed=authenticator.keys_needed)],
        exception_handlers={HTTPException: _unmatched},
    )
    app.router.redirect_slashes = False
    app.state.api = api
    app.state.close = partial(_close, api)
    return app


async def _close(api: Api) -> None:
    await api.streams.close()
    await api.waiters.close()
    await api.access.close()


def all_endpoints() -> list[Endpoint]:
    return [endpoint for part in PARTS for endpoint in part.routes.endpoints]


async def _unmatched(request: Request, error: Exception) -> Response:
    """The answer for an unknown path, or for a method that the path does not have."""
    if not isinstance(error, HTTPException):
        return problems.answer(error, request.headers)
    path = request.scope["path"]
    allowed = (error.headers or {}).get("Allow", "")
    if error.status_code == 405:
        sentence = f"{request.method} cannot be used at {path}: use {allowed.replace(', ', ' or ')}."
        refusal = Refusal(405, "method-not-allowed", sentence, {"Allow": allowed})
    else:
        sentence = f"There is nothing at {path}: /openapi.json lists all paths."
        refusal = Refusal(error.status_code, "not-found", sentence)
    return problems.answer(refusal, request.headers)
