"""Where the schedule of Celery beat is: in an app, in tables of django-celery-beat, or in keys of RedBeat."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from detent.declarative.beat_crontab import BeatCrontab
from detent.declarative.celery_beat import BeatEntry, BeatInterval
from detent.errors import DetentError, UsageError

SOLAR = "It runs by the sun (solar), and detent has no such schedule: give it a time of day."
FIELDS = BeatCrontab._fields
# Deletes expired results, in backends that keep them.
CLEANUP = "celery.backend_cleanup"
CLEANUP_EXPIRES = 12 * 3600


def entries_of_app(app: Any) -> list[BeatEntry]:
    """The `beat_schedule` of a Celery app, and what beat adds to it."""
    from celery.schedules import maybe_schedule

    found = []
    for name, entry in sorted({**_default_entries(app), **(app.conf.beat_schedule or {})}.items()):
        options = dict(entry.get("options") or {})
        schedule, remarks = _schedule_of(maybe_schedule(entry.get("schedule"), entry.get("relative", False)))
        found.append(
            BeatEntry(
                str(name),
                str(entry.get("task") or name),
                schedule,
                args=entry.get("args") or (),
                kwargs=entry.get("kwargs") or {},
                options=options,
                remarks=remarks,
            )
        )
    return found


def _default_entries(app: Any) -> dict[str, dict[str, Any]]:
    """As beat does, where results do not expire by themselves."""
    from celery.schedules import crontab

    try:
        kept = app.conf.result_expires and not app.backend.supports_autoexpire
    except Exception as error:
        raise UsageError(
            f"The result backend of the app cannot be loaded ({type(error).__name__}: {error})."
        ) from error
    if not kept:
        return {}
    entry = {"task": CLEANUP, "schedule": crontab(minute="0", hour="4"), "options": {"expires": CLEANUP_EXPIRES}}
    return {CLEANUP: entry}


def zone_of_app(app: Any) -> str:
    if not app.conf.timezone and not app.conf.enable_utc:
        raise UsageError(
            "The app uses the local time of its machine (enable_utc is False, and it has no timezone): give --timezone."
        )
    return str(app.conf.timezone or "UTC")


def _schedule_of(schedule: Any) -> tuple[BeatCrontab | BeatInterval | str, list[str]]:
    from celery.schedules import crontab
    from celery.schedules import schedule as interval

    kind = type(schedule)
    own_clock = ["It has a clock of its own (nowfun), which is left out."] if getattr(schedule, "nowfun", None) else []
    if kind is crontab:
        return BeatCrontab(*(_text(getattr(schedule, f"_orig_{name}")) for name in FIELDS)), own_clock
    if kind is interval:
        return BeatInterval(schedule.run_every.total_seconds(), bool(schedule.relative)), own_clock
    if kind.__name__ == "solar":
        return SOLAR, []
    return f"Its schedule is a {kind.__module__}.{kind.__qualname__}, which only Celery can compute.", []


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ",".join(map(str, value)) if isinstance(value, Iterable) else str(value)


# --- django-celery-beat ---


def entries_of_django(url: str, schema: str) -> list[BeatEntry]:
    from detent.store.celery_beat import list_beat_entries

    try:
        rows = asyncio.run(list_beat_entries(url, schema))
    except (DetentError, OSError) as error:
        if "django_celery_beat" not in str(error):
            raise UsageError(f"--django-url cannot be read: {error}") from error
        advice = "name the database of Django, and its schema with --django-schema"
        raise UsageError(f"--django-url has no tables of django-celery-beat ({error}): {advice}.") from error
    return [_of_row(row) for row in rows]


def _of_row(row: dict[str, Any]) -> BeatEntry:
    options = {name: row[name] for name in ("queue", "priority", "exchange", "routing_key") if row[name]}
    if row["headers"] not in (None, "", "{}"):
        options["headers"] = row["headers"]
    if row["expire_seconds"]:
        options["expires"] = row["expire_seconds"]
    args, kwargs, fault = _arguments(row["args"], row["kwargs"])
    return BeatEntry(
        row["name"],
        row["task"],
        fault or _schedule_of_row(row),
        row["timezone"],
        args,
        kwargs,
        options,
        enabled=row["enabled"],
        one_off=row["one_off"] and row["clocked_time"] is None,
        starts_at=row["start_time"],
        ends_at=row["expires"],
    )


def _arguments(args: str, kwargs: str) -> tuple[list[Any], dict[str, Any], str]:
    try:
        found, named = json.loads(args or "[]"), json.loads(kwargs or "{}")
    except ValueError:
        found = named = None
    if isinstance(found, list) and isinstance(named, dict):
        return found, named, ""
    return [], {}, "Its arguments are not a JSON list and a JSON object."


def _schedule_of_row(row: dict[str, Any]) -> BeatCrontab | BeatInterval | datetime | str:
    if row["minute"] is not None:
        return BeatCrontab(*(row[name] for name in FIELDS))
    if row["every"] is not None:
        return BeatInterval(timedelta(**{row["period"]: row["every"]}).total_seconds())
    if row["clocked_time"] is not None:
        return row["clocked_time"]  # type: ignore[no-any-return]  # a timestamptz
    return SOLAR if row["solar_id"] is not None else "It has no schedule."


# --- RedBeat ---


def entries_of_redbeat(url: str, prefix: str) -> list[BeatEntry]:
    try:
        import redis
    except ImportError as error:
        raise UsageError("RedBeat's keys are read with the Redis client: install `detent[redis]`.") from error
    try:
        client = redis.Redis.from_url(url, socket_connect_timeout=10, socket_timeout=30)
        keys = sorted(client.scan_iter(match=f"{prefix}*", count=1000))
        raw = {key: client.hget(key, "definition") for key in keys if client.type(key) == b"hash"}
    except (redis.RedisError, ValueError) as error:
        raise UsageError(f"--redbeat-url cannot be read: {error}") from error
    return [_of_definition(key, text) for key, text in raw.items() if isinstance(text, bytes)]


def _of_definition(key: bytes, text: bytes) -> BeatEntry:
    """One that cannot be read is reported with its key; the others are imported."""
    try:
        found = json.loads(text)
        options = {name: value for name, value in (found.get("options") or {}).items() if value is not None}
        return BeatEntry(
            str(found["name"]),
            str(found["task"]),
            _schedule_of_json(found.get("schedule")),
            None,
            list(found.get("args") or []),
            dict(found.get("kwargs") or {}),
            options,
            enabled=bool(found.get("enabled", True)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"Its definition cannot be read ({type(error).__name__}: {error})."
        return BeatEntry(key.decode(errors="replace"), "unknown", reason)


def _schedule_of_json(found: Any) -> BeatCrontab | BeatInterval | str:
    kind = found.get("__type__") if isinstance(found, dict) else None
    if kind == "crontab":
        return BeatCrontab(*(_text(found.get(name, "*")) for name in FIELDS))
    if kind == "interval":
        return BeatInterval(float(found["every"]), bool(found.get("relative")))
    if kind == "rrule":
        return "It has a recurrence rule of RedBeat: write it as a schedule `RRULE:…` of a job."
    return SOLAR if kind == "solar" else "Its schedule is of a kind that only RedBeat knows."
