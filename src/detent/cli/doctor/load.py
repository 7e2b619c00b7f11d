"""Two complaints about load: a CPU spike each minute, and flapping leadership."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from detent.cli import times
from detent.cli.doctor.results import Case, brief, number
from detent.store import sql

MANY_AT_ONCE = 1_000
MUCH_OF_ALL = 0.5
MANY_DEAD = 50_000
LOST = timedelta(hours=1)
SHORT_TTL = 2.0
MANY_GONE = 10


async def check_spike(case: Case) -> None:
    await case.check("the next ticks of all jobs", partial(_herd, case))
    await case.check("dead rows in the tables that every tick writes", partial(_tables, case))
    await case.check("transactions that have been open for more than a minute", partial(_long, case))


async def _herd(case: Case) -> None:
    rows = await case.doctor.ask(sql.doctor.HERD)
    if not rows:
        return
    top, total = rows[0], rows[0]["total"]
    on_minute = (top["on_the_minute"] or 0) / total
    text = (
        f"{number(total, 'job')} with the next tick within an hour, {on_minute:.0%} of these ticks on a full minute; "
        f"the most at one instant are {top['ticks']}, at {times.absolute(times.written(top['fire_at']))}."
    )
    if top["ticks"] >= MANY_AT_ONCE and top["ticks"] > total * MUCH_OF_ALL / 60:
        advice = (
            "Spread them: `H * * * *` instead of `0 * * * *` gives each job its own minute, "
            "and jitter_seconds delays each run a little."
        )
        case.add("warn", text, advice)
    else:
        case.add("ok", text)


async def _tables(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.TABLES):
        if row["dead"] > MANY_DEAD and row["dead"] > row["live"]:
            since = times.relative(times.written(row["vacuumed"]), times.now()) if row["vacuumed"] else "never"
            text = (
                f"{row['name']} has {row['dead']} dead rows and {row['live']} live ones; the last vacuum was {since}."
            )
            case.add("warn", text, f"Find out what blocks autovacuum; until then run VACUUM {row['name']}.")


async def _long(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.LONG_TRANSACTIONS):
        who = row["application"] or "a session without a name"
        text = f"{who} (process {row['pid']}) has had a transaction open for {times.span(row['seconds'] * 1000)}."
        case.add("warn", text, "It prevents vacuum, which slows every claim: end it.")


async def check_flapping(case: Case) -> None:
    await case.check("leadership changes of the last hour", partial(_taken, case))
    await case.check("heartbeats and lease times", partial(_beats, case))
    await case.check("attempts of the last hour that ended with the loss of a node", partial(_lost, case))
    await case.check("the response time of the database", partial(_answers, case))


async def _taken(case: Case) -> None:
    row = await case.doctor.elections()
    taken, nodes, gone = row["take_overs"], row["nodes"], row["gone"]
    text = (
        f"In the last hour leadership was taken {number(taken, 'time')} ({number(row['last_hour'], 'partition')}) "
        f"by {number(nodes, 'node')}, of which {gone} {'is' if gone == 1 else 'are'} gone."
    )
    advice = "Nodes lose their lease: raise lease_ttl_seconds, and check for pauses (memory, CPU limits, network)."
    if row["flapping"]:
        more = f" {number(len(row['flapping']), 'partition')} changed leaders again although no node joined or left."
        case.add("warn", text + more, advice)
    elif gone >= MANY_GONE:
        case.add("warn", text, advice)
    else:
        case.add("ok", text)


async def _beats(case: Case) -> None:
    for node in await case.doctor.ask(sql.doctor.NODES):
        if node["alive"] and node["age"] > node["ttl"] * 2 / 3:
            age = times.span(node["age"] * 1000)
            text = f"The last heartbeat of {node['host']} is {age} old; its lease is {node['ttl']:g} s."
            case.add("warn", text, "A node sends one every third of its lease: that host, or its network, is slow.")
        if node["alive"] and node["ttl"] < SHORT_TTL:
            text = f"The node on {node['host']} has a lease of {node['ttl']:g} s."
            case.add("warn", text, "Below 2 s a short pause loses the lease: set lease_ttl_seconds to 5.")


async def _lost(case: Case) -> None:
    for row in await case.doctor.ask(sql.doctor.ATTEMPTS, LOST, case.number):
        if row["outcome"] == "lost":
            text = f"{number(row['attempts'], 'attempt', 'were')} lost with their node in the last hour."
            case.add(
                "warn",
                text,
                "Find out why that node was lost: check its log, the kernel log (out of memory) and deploys.",
            )


async def _answers(case: Case) -> None:
    trips = sorted(await case.doctor.round_trips(10))
    slowest = trips[-1].total_seconds()
    ttl = min((node["ttl"] for node in await case.doctor.ask(sql.doctor.NODES) if node["alive"]), default=5.0)
    text = f"The slowest of 10 answers of the database took {brief(slowest)}."
    if slowest > ttl / 10:
        case.add(
            "warn",
            text,
            f"A heartbeat has {ttl / 3:.1f} s: run the node closer to the database, or raise lease_ttl_seconds.",
        )
    else:
        case.add("ok", text)
