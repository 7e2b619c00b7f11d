"""Checks of the database: whether it can be reached, its version, and poolers in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from detent.cli.config import without_password
from detent.cli.doctor.results import CheckResult, brief, number
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


async def check_server(doctor: Doctor, url: str) -> AsyncIterator[CheckResult]:
    row = await doctor.one(sql.doctor.SERVER)
    trip = sorted(await doctor.round_trips())[2].total_seconds()
    text = f"{without_password(url)} answers in {brief(trip)}."
    if row["standby"]:
        advice = "Use the address of the primary."
        yield CheckResult("database", "fail", f"{without_password(url)} is a read-only standby.", advice)
    elif trip > SLOW_ROUND_TRIP:
        yield CheckResult("database", "warn", text, "Run detent closer to its database: every tick needs a round trip.")
    else:
        yield CheckResult("database", "ok", text)
    yield _version(row)
    yield await _clock(doctor, trip)


def _version(row: Row) -> CheckResult:
    major = row["number"] // 10_000
    text = f"PostgreSQL {row['version'].split()[0]}."
    if major < TESTED[0]:
        advice = f"Upgrade it: detent needs PostgreSQL {TESTED[0]} or newer."
        return CheckResult("version", "fail", text, advice)
    if major > TESTED[1]:
        return CheckResult("version", "warn", text, f"This detent was tested up to PostgreSQL {TESTED[1]}.")
    return CheckResult("version", "ok", text)


async def _clock(doctor: Doctor, trip: float) -> CheckResult:
    row = await doctor.one(sql.doctor.SERVER)
    offset = (datetime.now(UTC) - row["at"]).total_seconds() - trip / 2
    side = "ahead of" if offset > 0 else "behind"
    text = f"The clock of this host is {brief(abs(offset))} {side} that of the database."
    if abs(offset) < MUCH_OFFSET:
        return CheckResult("clock", "ok", text)
    advice = "Ticks follow the database's clock and are not affected; times in logs are. Set up NTP on both."
    return CheckResult("clock", "warn", text, advice)


async def check_migrations(doctor: Doctor) -> CheckResult:
    try:
        states = await doctor.migrations()
    except Unavailable as error:
        return CheckResult("migrations", "fail", error.message, "")
    by_state = {state.state: state for state in states}
    applied = sum(state.state == "applied" for state in states)
    text = f"{applied} of {len(migrate.known())} migrations are applied."
    if "unknown" in by_state:
        name = by_state["unknown"].name
        return CheckResult(
            "migrations", "fail", f"The database has migration {name} of a newer detent.", "Upgrade this detent."
        )
    if "changed" in by_state:
        name = by_state["changed"].name
        advice = "Restore the file, and put the change into a new migration."
        return CheckResult("migrations", "fail", f"Migration {name} was changed after it was applied.", advice)
    if "pending" in by_state:
        return CheckResult("migrations", "fail", text, "Run `detent db migrate`.")
    if "newer" in by_state:
        text = f"The database has migration {by_state['newer'].name} of a newer detent, which is compatible."
        return CheckResult("migrations", "ok", text)
    return CheckResult("migrations", "ok", text)


async def check_connections(doctor: Doctor, nodes: int, handlers: bool) -> CheckResult:
    row = await doctor.one(sql.doctor.SERVER)
    limits = [row["max_connections"] - row["reserved"]]
    limits += [limit for limit in (row["role_limit"], row["database_limit"]) if limit is not None and limit >= 0]
    allowed = min(limits)
    each = CONNECTIONS_PER_NODE + (CONNECTIONS_FOR_HANDLERS if handlers else 0)
    need = each * max(nodes, 1)
    needing = number(max(nodes, 1), "node", "need")
    text = f"{allowed} connections are allowed and {row['used']} in use; {needing} up to {need}."
    advice = "Raise max_connections, or the limit of the role or database, or start fewer nodes."
    if need > allowed:
        return CheckResult("connections", "fail", text, advice)
    if need + row["used"] > allowed and row["used"] > need:
        return CheckResult("connections", "warn", text, "Other clients use most of them: raise max_connections.")
    return CheckResult("connections", "ok", text)


async def check_pooler(doctor: Doctor, pooling: Pooling) -> AsyncIterator[CheckResult]:
    match pooling:
        case "none" if doctor.pooled:
            text = "DETENT_DATABASE_POOLER is set, but there is no pooler in front of the database."
            advice = "Unset it: nodes then use LISTEN/NOTIFY instead of polling."
            yield CheckResult("pooler", "warn", text, advice)
        case "none":
            yield CheckResult("pooler", "ok", "There is no pooler in front of the database.")
        case "session":
            yield CheckResult("pooler", "ok", "There is a session pooler in front of the database.")
        case "transaction":
            text = "There is a transaction pooler in front of the database"
            if doctor.pooled:
                yield CheckResult("pooler", "ok", f"{text}, as configured.")
            else:
                advice = "Set DETENT_DATABASE_POOLER=transaction, or use the server's own address."
                yield CheckResult("pooler", "fail", f"{text}.", advice)
    yield await (_role_behind_pooler(doctor) if doctor.pooled else _role(doctor, pooling))


async def _role_behind_pooler(doctor: Doctor) -> CheckResult:
    try:
        await doctor.verify_role()
    except Unavailable as error:
        text, _, advice = error.message.partition(": run ")
        return CheckResult("role settings", "fail", f"{text}.", f"Run {advice}")
    return CheckResult("role settings", "ok", "The role has the settings that nodes need behind a pooler.")


async def _role(doctor: Doctor, pooling: Pooling) -> CheckResult:
    plain = await doctor.one(sql.doctor.SERVER)
    wanted = wanted_settings()
    missing = [name for name, value in wanted.items() if not _same(plain[name], value)]
    alter = " ".join(f"ALTER ROLE {plain['role']} SET {name} = '{wanted[name]}';" for name in missing)
    try:
        real = await doctor.settings_of_a_node()
    except Unavailable as error:
        if not refused_settings(error):
            return CheckResult("role settings", "fail", error.message, "")
        advice = "Set DETENT_DATABASE_POOLER=transaction, or use the server's own address."
        return CheckResult("role settings", "fail", "The pooler refuses the connection settings of a node.", advice)
    if all(_same(real[name], value) for name, value in wanted.items()) and pooling != "transaction":
        return CheckResult("role settings", "ok", f"Connections have the settings of a node: {', '.join(wanted)}.")
    if not missing:
        return CheckResult("role settings", "ok", f"The role {plain['role']} has {', '.join(wanted)} set.")
    text = f"The pooler drops {', '.join(missing)}, and the role does not set them."
    return CheckResult("role settings", "fail", text, f"Without them queries get slow plans: {alter}")


async def check_role(doctor: Doctor) -> CheckResult:
    """Owning the tables is normal on the embedded server, which has no other administrator."""
    row = await doctor.one(sql.doctor.ROLE)
    advice = (
        "Let nodes connect as a role that owns nothing, which `detent db migrate --runtime-role NAME` grants what it "
        "needs."
    )
    if row["superuser"]:
        text = f"The role {row['role']} is a superuser: a statement of it can read files of the server's machine."
        return CheckResult("role", "warn", text, advice)
    if doctor.embedded:
        return CheckResult("role", "ok", f"The role {row['role']} is not a superuser.")
    if row["owner"]:
        return CheckResult("role", "warn", f"The role {row['role']} owns the tables and can drop them.", advice)
    if row["unused_wall"]:
        text = (
            f"The role {row['role']} is not a member of {row['unused_wall']}: "
            "requests are not restricted to the rows of their tenant."
        )
        return CheckResult("role", "warn", text, f"Run GRANT {row['unused_wall']} TO {row['role']}; restart the nodes.")
    return CheckResult("role", "ok", f"The role {row['role']} neither is a superuser nor owns the tables.")


def _same(found: object, wanted: str) -> bool:
    if isinstance(found, bool):
        return found == (wanted == "on")
    if isinstance(found, float):
        return found <= float(wanted)
    return str(found) == wanted


async def gather(findings: AsyncIterator[CheckResult]) -> list[CheckResult]:
    return [finding async for finding in findings]
