"""Checks of the database: can it be reached, is it what this version needs, and does anything stand in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from detent.cli.config import without_password
from detent.cli.doctor.findings import Finding, brief, number
from detent.errors import Unavailable
from detent.store import migrate, sql
from detent.store.db import Row
from detent.store.doctor import (
    CONNECTIONS_FOR_HANDLERS,
    CONNECTIONS_PER_NODE,
    Doctor,
    Pooling,
    refused_settings,
    wanted_settings,
)

TESTED = (15, 18)
MUCH_OFFSET = 1.0
SLOW_ROUND_TRIP = 0.050


async def check_server(doctor: Doctor, url: str) -> AsyncIterator[Finding]:
    row = await doctor.one(sql.doctor.SERVER)
    trip = sorted(await doctor.round_trips())[2].total_seconds()
    told = f"{without_password(url)} answers in {brief(trip)}."
    if row["standby"]:
        advice = "Name the primary: detent writes."
        yield Finding("database", "fail", f"{without_password(url)} is a standby that only reads.", advice)
    elif trip > SLOW_ROUND_TRIP:
        yield Finding("database", "warn", told, "Bring detent nearer to its database: every fire is a round trip.")
    else:
        yield Finding("database", "ok", told)
    yield _version(row)
    yield await _clock(doctor, trip)


def _version(row: Row) -> Finding:
    major = row["number"] // 10_000
    told = f"It is PostgreSQL {row['version'].split()[0]}."
    if major < TESTED[0]:
        advice = f"Upgrade it: detent needs PostgreSQL {TESTED[0]} or newer."
        return Finding("version", "fail", told, advice)
    if major > TESTED[1]:
        return Finding("version", "warn", told, f"This detent was tested up to PostgreSQL {TESTED[1]}.")
    return Finding("version", "ok", told)


async def _clock(doctor: Doctor, trip: float) -> Finding:
    row = await doctor.one(sql.doctor.SERVER)
    offset = (datetime.now(UTC) - row["at"]).total_seconds() - trip / 2
    side = "ahead of" if offset > 0 else "behind"
    told = f"The clock of this machine is {brief(abs(offset))} {side} that of the database."
    if abs(offset) < MUCH_OFFSET:
        return Finding("clock", "ok", told)
    advice = "Ticks follow the database's clock and are right, but times in logs are not: set up NTP on both."
    return Finding("clock", "warn", told, advice)


async def check_migrations(doctor: Doctor) -> Finding:
    try:
        states = await doctor.migrations()
    except Unavailable as error:
        return Finding("migrations", "fail", error.message, "")
    by_state = {state.state: state for state in states}
    applied = sum(state.state == "applied" for state in states)
    told = f"{applied} of {len(migrate.known())} migrations are applied."
    if "unknown" in by_state:
        name = by_state["unknown"].name
        return Finding("migrations", "fail", f"It has migration {name} of a newer detent.", "Upgrade this detent.")
    if "changed" in by_state:
        name = by_state["changed"].name
        advice = "Put the file back as it was, and make the change in a new migration."
        return Finding("migrations", "fail", f"Migration {name} was changed after it was applied.", advice)
    if "pending" in by_state:
        return Finding("migrations", "fail", told, "Run `detent db migrate`.")
    if "newer" in by_state:
        told = f"It has migration {by_state['newer'].name} of a newer detent, with which this one can work."
        return Finding("migrations", "ok", told)
    return Finding("migrations", "ok", told)


async def check_connections(doctor: Doctor, nodes: int, handlers: bool) -> Finding:
    row = await doctor.one(sql.doctor.SERVER)
    limits = [row["max_connections"] - row["reserved"]]
    limits += [limit for limit in (row["role_limit"], row["database_limit"]) if limit is not None and limit >= 0]
    allowed = min(limits)
    each = CONNECTIONS_PER_NODE + (CONNECTIONS_FOR_HANDLERS if handlers else 0)
    need = each * max(nodes, 1)
    needing = number(max(nodes, 1), "node", "need")
    told = f"{allowed} connections are allowed and {row['used']} in use; {needing} up to {need}."
    advice = "Raise max_connections, or the limit of the role or database, or start fewer nodes."
    if need > allowed:
        return Finding("connections", "fail", told, advice)
    if need + row["used"] > allowed and row["used"] > need:
        return Finding("connections", "warn", told, "Others use most of them: raise max_connections.")
    return Finding("connections", "ok", told)


async def check_pooler(doctor: Doctor, pooling: Pooling) -> AsyncIterator[Finding]:
    match pooling:
        case "none" if doctor.pooled:
            told = "Nothing stands between this machine and the server, although DETENT_DATABASE_POOLER says so."
            yield Finding("pooler", "warn", told, "Leave it out: nodes are then told of changes, and need not look.")
        case "none":
            yield Finding("pooler", "ok", "Nothing stands between this machine and the server.")
        case "session":
            told = "A pooler is in between, and gives each client a connection of its own (session pooling)."
            yield Finding("pooler", "ok", told)
        case "transaction":
            told = "A pooler is in between that hands connections on after each transaction"
            if doctor.pooled:
                yield Finding("pooler", "ok", f"{told}, and nodes know of it.")
            else:
                advice = "Set DETENT_DATABASE_POOLER=transaction, or name the server itself in DETENT_DATABASE_URL."
                yield Finding("pooler", "fail", f"{told}.", advice)
    yield await (_role_behind_pooler(doctor) if doctor.pooled else _role(doctor, pooling))


async def _role_behind_pooler(doctor: Doctor) -> Finding:
    try:
        await doctor.verify_role()
    except Unavailable as error:
        told, _, advice = error.message.partition(": run ")
        return Finding("role settings", "fail", f"{told}.", f"Run {advice}")
    return Finding("role settings", "ok", "The role has what nodes need behind a pooler.")


async def _role(doctor: Doctor, pooling: Pooling) -> Finding:
    plain = await doctor.one(sql.doctor.SERVER)
    wanted = wanted_settings()
    missing = [name for name, value in wanted.items() if not _same(plain[name], value)]
    alter = " ".join(f"ALTER ROLE {plain['role']} SET {name} = '{wanted[name]}';" for name in missing)
    try:
        real = await doctor.settings_of_a_node()
    except Unavailable as error:
        if not refused_settings(error):
            return Finding("role settings", "fail", error.message, "")
        advice = "Set DETENT_DATABASE_POOLER=transaction, or name the server itself in DETENT_DATABASE_URL."
        return Finding("role settings", "fail", "The pooler refuses the settings that a node asks for.", advice)
    if all(_same(real[name], value) for name, value in wanted.items()) and pooling != "transaction":
        return Finding("role settings", "ok", f"Connections get {', '.join(wanted)} as nodes ask for them.")
    if not missing:
        return Finding("role settings", "ok", f"The role {plain['role']} has {', '.join(wanted)} set.")
    told = f"{', '.join(missing)} do not stick through the pooler, and the role does not have them."
    return Finding("role settings", "fail", told, f"Without them plans become slow: {alter}")


def _same(found: object, wanted: str) -> bool:
    if isinstance(found, bool):
        return found == (wanted == "on")
    if isinstance(found, float):
        return found <= float(wanted)
    return str(found) == wanted


async def gather(findings: AsyncIterator[Finding]) -> list[Finding]:
    return [finding async for finding in findings]
