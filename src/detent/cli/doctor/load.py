"""Two complaints about load: a spike at every minute, and leadership that does not stay."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from detent.cli import times
from detent.cli.doctor.findings import Case, brief, number
from detent.store import sql

MANY_AT_ONCE = 1_000
MUCH_OF_ALL = 0.5
MANY_DEAD = 50_000
LOST = timedelta(hours=1)
SHORT_TTL = 2.0
MANY_GONE = 10


async def tell_spike(case: Case) -> None:
    await case.look("the instants of the next hour at which ticks fall due", partial(_herd, case))
    await case.look("dead rows in the tables that every fire writes", partial(_tables, case))
    await case.look("transactions that have been open for more than a minute", partial(_long, case))


async def _herd(case: Case) -> None:
    rows = await case.doctor.ask(sql.doctor.HERD)
    if not rows:
        return
    top, total = rows[0], rows[0]["total"]
    on_minute = (top["on_the_minute"] or 0) / total
    told = (
        f"{number(total, 'tick')} in the next hour, {on_minute:.0%} of them on a full minute; "
        f"the most at once are {top['ticks']}, at {times.absolute(times.written(top['fire_at']))}."
    )
    if top["ticks"] >= MANY_AT_ONCE and top["ticks"] > total * MUCH_OF_ALL / 60:
        advice = (
            "Spread them: `H * * * *` instead of `0 * * * *` gives each job its own minute, "
            "jitter_seconds delays each run a little."
        )
        case.add("warn", told, advice)
    else:
        case.add("ok", told)


async def _tables(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.TABLES):
        if row["dead"] > MANY_DEAD and row["dead"] > row["live"]:
            since = times.relative(times.written(row["vacuumed"]), times.now()) if row["vacuumed"] else "never"
            told = f"{row['name']} has {row['dead']} dead rows beside {row['live']}; the last vacuum was {since}."
            case.add("warn", told, f"Look for what holds autovacuum back; meanwhile VACUUM {row['name']} helps.")


async def _long(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.LONG_TRANSACTIONS):
        who = row["application"] or "a session without a name"
        told = f"{who} (process {row['pid']}) has had a transaction open for {times.span(row['seconds'] * 1000)}."
        case.add("warn", told, "It keeps dead rows alive, which slows every claim: end it.")


async def tell_flapping(case: Case) -> None:
    await case.look("how often partitions changed hands in the last hour", partial(_taken, case))
    await case.look("heartbeats and times to live", partial(_beats, case))
    await case.look("attempts of the last hour that were lost with their node", partial(_lost, case))
    await case.look("how long the database takes to answer", partial(_answers, case))


async def _taken(case: Case) -> None:
    row = await case.doctor.elections()
    taken, nodes, gone = row["take_overs"], row["nodes"], row["gone"]
    told = (
        f"In the last hour leadership was taken {number(taken, 'time')} ({number(row['last_hour'], 'partition')}) "
        f"by {number(nodes, 'node')}, of which {gone} {'is' if gone == 1 else 'are'} gone."
    )
    advice = "Nodes lose their place: raise lease_ttl_seconds, and look for pauses (memory, CPU limits, network)."
    if row["flapping"]:
        more = f" {number(len(row['flapping']), 'partition')} changed hands again although no node came or went."
        case.add("warn", told + more, advice)
    elif gone >= MANY_GONE:
        case.add("warn", told, advice)
    else:
        case.add("ok", told)


async def _beats(case: Case) -> None:
    for node in await case.doctor.ask(sql.doctor.NODES):
        if node["alive"] and node["age"] > node["ttl"] * 2 / 3:
            told = (
                f"The last heartbeat of {node['host']} is {times.span(node['age'] * 1000)} old, of {node['ttl']:g} s."
            )
            case.add("warn", told, "It beats every third of its time to live: that machine, or its network, is slow.")
        if node["alive"] and node["ttl"] < SHORT_TTL:
            told = f"The node on {node['host']} has a time to live of {node['ttl']:g} s."
            case.add("warn", told, "Below 2 s a short pause is taken for a death: set lease_ttl_seconds to 5.")


async def _lost(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.ATTEMPTS, LOST, case.number):
        if row["outcome"] == "lost":
            told = f"{number(row['attempts'], 'attempt', 'were')} lost with their node in the last hour."
            case.add("warn", told, "Find out why that node went away: its log, the kernel's (out of memory), deploys.")


async def _answers(case: Case) -> None:
    trips = sorted(await case.doctor.round_trips(10))
    slowest = trips[-1].total_seconds()
    ttl = min((node["ttl"] for node in await case.doctor.ask(sql.doctor.NODES) if node["alive"]), default=5.0)
    told = f"The slowest of 10 answers of the database took {brief(slowest)}."
    if slowest > ttl / 10:
        case.add(
            "warn", told, f"A heartbeat has {ttl / 3:.1f} s: bring node and database nearer, or raise the time to live."
        )
    else:
        case.add("ok", told)
