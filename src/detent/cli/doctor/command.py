"""`detent doctor`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from detent.cli import base, output
from detent.cli.base import command, option
from detent.cli.invocation import (
    check_key_address,
    client_settings,
    client_tls,
    complete_job,
    format_options,
    invocation,
    server_options,
)
from detent.cli.nodes import database_options
from detent.cli.text import clean
from detent.domain.counts import plural
from detent.errors import DetentError, NotFound, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from detent.cli.doctor.results import CheckResult, ComplaintReport
    from detent.settings.settings import Settings
    from detent.store.db import Row
    from detent.store.doctor import Doctor
    from detent.store.embedded_state import EmbeddedState

COMPLAINTS = ("runs-twice", "never-ran", "stuck", "cpu-spike", "flapping")
STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@command(
    None,
    "doctor",
    panel="Administration",
    examples=("detent doctor", "detent doctor --story runs-twice --job report"),
)
@option("--story", type=click.Choice(COMPLAINTS), multiple=True, help="Examine only this complaint; may be repeated.")
@option("--job", metavar="JOB", shell_complete=complete_job, help="Examine the complaints for this job only.")
@database_options
@server_options(hidden=True)
@format_options(quiet="nothing: the exit code is the answer")
def doctor(story: tuple[str, ...], job: str | None, **flags: str | None) -> int:
    """Find problems and recommend what to do.

    Checks this host, the database, the nodes and the API, then five common
    complaints, which --story names: a job runs twice (runs-twice), a job never
    ran after a node was lost (never-ran), runs are stuck (stuck), the CPU
    spikes each minute (cpu-spike), leadership flaps (flapping). It changes
    nothing. Exit code 1 when a check fails.
    """
    import asyncio

    from detent.cli.doctor.data_folder import with_data_folder

    settings = with_data_folder(client_settings(**flags))
    findings, stories = asyncio.run(_examine(settings, story, job))
    if invocation().format == "json":
        document = {"checks": [one.document() for one in findings], "stories": [one.document() for one in stories]}
        output.print_json(document)
    elif invocation().format == "text":
        _print(findings, stories)
    statuses = [one.status for one in (*findings, *(one for story in stories for one in story.findings))]
    if invocation().format == "text":
        output.say(_summary(statuses))
    return int("fail" in statuses)


async def _examine(
    settings: Settings, asked: Sequence[str], job: str | None
) -> tuple[list[CheckResult], list[ComplaintReport]]:
    from detent.cli.doctor.results import CheckResult
    from detent.store.doctor import examining

    findings: list[CheckResult] = []
    state = _embedded(settings)
    if not asked:
        findings += _machine(settings, state)
    url = settings.database_url or (state.url if state else None)
    if url is None:
        if asked or job:
            findings += _machine(settings, state)
        return findings, []
    try:
        embedded = settings.database_url is None
        schema, pooled = settings.database_schema, settings.pooled
        async with examining(url, schema, pooled=pooled, embedded=embedded) as doctor:
            return await _examine_database(doctor, url, settings, findings, asked, job)
    except NotFound:
        raise
    except DetentError as error:
        text, _, advice = error.message.rpartition(": ")
        findings.append(CheckResult("database", "fail", f"{text}.", advice[:1].upper() + advice[1:]))
        return findings, []


async def _examine_database(
    doctor: Doctor,
    url: str,
    settings: Settings,
    findings: list[CheckResult],
    asked: Sequence[str],
    job: str | None,
) -> tuple[list[CheckResult], list[ComplaintReport]]:
    from detent.cli.doctor import complaints, database

    migrated = await database.check_migrations(doctor)
    if not asked:
        findings += [finding async for finding in database.check_server(doctor, url)]
    if not asked or migrated.status != "ok":
        findings.append(migrated)
    if migrated.status != "ok":
        return findings, []
    if not asked:
        findings += await _cluster(doctor, settings)
    row = await _job(doctor, job) if job else None
    return findings, [await complaints.examine(name, doctor, row) for name in asked or COMPLAINTS]


async def _cluster(doctor: Doctor, settings: Settings) -> list[CheckResult]:
    from detent.cli.doctor import cluster, database, hosts, identity, secrets, transport, unfired
    from detent.cli.doctor.missing import OVERDUE
    from detent.store import sql

    nodes = await doctor.ask(sql.doctor.NODES)
    alive = [node for node in nodes if node["alive"]]
    handlers = any("worker" in node["roles"] for node in alive)
    found = [await database.check_connections(doctor, len(alive), handlers)]
    found += [finding async for finding in database.check_pooler(doctor, await doctor.pooling())]
    found.append(await database.check_role(doctor))
    original = await doctor.identity()
    found += [identity.check_original(original), identity.check_hold(await doctor.one(sql.doctor.HOLD))]
    found += cluster.check_nodes(nodes)
    found += cluster.check_lost(await doctor.ask(sql.doctor.LOST_NODES), nodes)
    queues = [row["queue"] for row in await doctor.ask(sql.queue.LIST_ALL)]
    found += [finding async for finding in transport.check_transport(settings.queue, original.id, queues)]
    found.append(cluster.check_partitions(await doctor.one(sql.doctor.PARTITIONS), nodes))
    found.append(cluster.check_ticks(await doctor.one(sql.doctor.OVERDUE, OVERDUE, None)))
    found += await unfired.check_jobs(doctor)
    ever, valid = (await doctor.one(sql.key.FIND_ANY))["found"], (await doctor.one(sql.key.FIND_ANY_VALID))["found"]
    found.append(cluster.check_keys(ever, valid))
    found += hosts.check_hosts(await doctor.ask(sql.doctor.CIRCUITS))
    found += cluster.check_calls(await doctor.one(sql.doctor.REFUSED_CALLS, cluster.NEWEST_DEAD))
    found += cluster.check_dead_letters(await doctor.one(sql.dead_letter_topic.READ_FAILING, cluster.MOST_LETTERS))
    found += cluster.check_notices(await doctor.one(sql.notice.READ_FAILING, cluster.MOST_LETTERS))
    found += secrets.check_secret_keys(await doctor.ask(sql.secret.COUNT_BY_KEY), settings.secret_key)
    found += secrets.check_literal_headers(await doctor.one(sql.doctor.LITERAL_HEADERS, secrets.NEWEST_JOBS))
    return found


async def _job(doctor: Doctor, name: str) -> Row:
    from detent.store import sql

    rows = await doctor.ask(sql.doctor.JOB, name)
    if not rows:
        raise NotFound(f"There is no job {name!r}: `detent job list` shows the jobs.")
    return rows[0]


def _embedded(settings: Settings) -> EmbeddedState | None:
    from detent.store.embedded_state import embedded_state

    try:
        return embedded_state(settings.data_dir)
    except PermissionError:
        return None


def _machine(settings: Settings, state: EmbeddedState | None) -> list[CheckResult]:
    from detent.cli.doctor import cluster, machine
    from detent.cli.doctor.results import CheckResult
    from detent.client import JsonClient

    check_key_address(settings)
    try:
        with JsonClient(settings.api_url, settings.api_key, timeout=5, tls=client_tls(settings)) as client:
            api, _ = cluster.check_api(settings, client)
    except UsageError as error:  # of the files for TLS
        api = CheckResult("api", "fail", f"The API was not called. {error.message}", "Correct that file.")
    return [
        *_certificates(settings),
        machine.check_zone_data(),
        machine.check_disk(settings.data_dir),
        *machine.check_embedded(settings, state),
        machine.check_port(settings, _answers_there(settings)),
        api,
    ]


def _certificates(settings: Settings) -> Iterator[CheckResult]:
    if settings.tls_given or settings.ca_file or settings.client_cert or settings.client_key:
        from detent.cli.doctor.certificates import check_certificates  # loads slowly

        yield from check_certificates(settings)


def _answers_there(settings: Settings) -> bool:
    """Whether a detent server listens at the configured address."""
    if settings.tls_cert is not None:
        from detent.cli.doctor.certificates import presents_certificate

        return presents_certificate(settings)
    from detent.client import JsonClient

    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        with JsonClient(f"http://{host}:{settings.port}", timeout=2) as client:
            return "version" in client.version()
    except DetentError:
        return False


def _print(findings: Sequence[CheckResult], stories: Sequence[ComplaintReport]) -> None:
    if not base.on_terminal():
        output.print_lines((one.status, one.check, one.found, one.advice) for one in findings)
        for story in stories:
            output.print_lines((one.status, story.name, one.found, one.advice) for one in story.findings)
        return
    terminal = output.console()
    terminal.print(_table(findings))
    for story in stories:
        terminal.print(f"\n{story.complaint}?", style="bold")
        terminal.print(f"Checked: {'; '.join(story.looked_at)}.", style="dim")
        terminal.print(_table(story.findings))


def _table(findings: Sequence[CheckResult]) -> Table:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for one in findings:
        made.add_row(Text(one.status, style=STYLES[one.status]), Text(clean(f"{one.check}: {one.found}".lstrip(": "))))
        if one.advice:
            made.add_row("", Text(f"→ {clean(one.advice)}", style="italic"))
    return made


def _summary(statuses: Sequence[str]) -> str:
    failed, warned = statuses.count("fail"), statuses.count("warn")
    if not failed and not warned:
        return "No problems found."
    text = [plural(count, word) for count, word in ((failed, "failure"), (warned, "warning")) if count]
    return f"Found {' and '.join(text)}."
