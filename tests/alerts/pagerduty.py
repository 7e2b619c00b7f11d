"""A receiver in the shape of PagerDuty Events API v2: it refuses what the documented schema does not allow, and keeps
incidents by their dedup_key as PagerDuty does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from aiohttp import web

ROUTING_KEY = "0123456789abcdef0123456789abcdef"
ACTIONS = {"trigger", "acknowledge", "resolve"}
SEVERITIES = {"critical", "error", "warning", "info"}
MEMBERS = {"routing_key", "event_action", "dedup_key", "payload", "client", "client_url", "links", "images"}
PAYLOAD = {"summary", "source", "severity", "timestamp", "component", "group", "class", "custom_details"}


class PagerDuty:
    def __init__(self) -> None:
        self.url = ""
        self.events: list[dict[str, Any]] = []
        self.incidents: dict[str, str] = {}
        """What each dedup_key is: triggered or resolved."""
        self.refused: list[str] = []
        self.answers: list[int] = []
        """Statuses to answer with first, whatever came."""

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.answers:
            return web.json_response({"status": "error"}, status=self.answers.pop(0))
        fault = _fault(request, body)
        if fault is not None:
            self.refused.append(fault)
            return web.json_response(
                {"status": "invalid event", "message": "Event object is invalid", "errors": [fault]}, status=400
            )
        event = json.loads(body)
        self.events.append(event)
        self.incidents[event["dedup_key"]] = "resolved" if event["event_action"] == "resolve" else "triggered"
        answer = {"status": "success", "message": "Event processed", "dedup_key": event["dedup_key"]}
        return web.json_response(answer, status=202)


def _fault(request: web.Request, body: bytes) -> str | None:
    """What is wrong with a request, by the documented schema."""
    if request.method != "POST" or request.path != "/v2/enqueue" or request.content_type != "application/json":
        return "not a POST of JSON to /v2/enqueue"
    if len(body) > 512 * 1024:
        return "larger than 512 KB"
    event = json.loads(body)
    if unknown := event.keys() - MEMBERS:
        return f"unknown members {unknown}"
    if event.get("routing_key") != ROUTING_KEY:
        return "Invalid routing key"
    if event.get("event_action") not in ACTIONS:
        return "'event_action' is invalid"
    if not isinstance(event.get("dedup_key"), str) or not 0 < len(event["dedup_key"]) <= 255:
        return "'dedup_key' is missing or longer than 255 characters"
    return _payload_fault(event["payload"]) if event["event_action"] == "trigger" else None


def _payload_fault(payload: dict[str, Any]) -> str | None:
    if unknown := payload.keys() - PAYLOAD:
        return f"unknown members of payload {unknown}"
    if not isinstance(payload.get("summary"), str) or not 0 < len(payload["summary"]) <= 1024:
        return "'payload.summary' is missing or longer than 1024 characters"
    if not isinstance(payload.get("source"), str) or not payload["source"]:
        return "'payload.source' is missing"
    if payload.get("severity") not in SEVERITIES:
        return "'payload.severity' is invalid"
    if datetime.fromisoformat(payload["timestamp"]).tzinfo is None:
        return "'payload.timestamp' has no offset"
    return None


@asynccontextmanager
async def pagerduty() -> AsyncIterator[PagerDuty]:
    made = PagerDuty()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.receive)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v2/enqueue"
    try:
        yield made
    finally:
        await runner.cleanup()
