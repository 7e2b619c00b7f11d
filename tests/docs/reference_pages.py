"""The tables of the reference that are made from the code: settings, fields of jobs, targets and runs, routes.

    python -m tests.docs.reference_pages

writes them into their pages, between `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from detent.api.app import PARTS
from detent.domain.job import HttpTarget, JobSpec, PythonTarget, ShellTarget
from detent.domain.job_fields import FIELDS_BY_NAME
from detent.settings.settings import SETTINGS
from detent.telemetry.exposition import every_metric

DOCS = Path(__file__).parents[2] / "docs"
_TABLE = re.compile(r"(?P<start><!-- table: (?P<name>[a-z ]+) -->\n).*?(?P<end><!-- end of table -->)", re.DOTALL)

# What each setting is for. How it is written is told by the setting itself.
PURPOSES = {
    "database_url": "The PostgreSQL to use; without one, the embedded one in `data_dir`.",
    "database_schema": "The schema that holds detent's tables.",
    "database_pooler": "What stands between detent and the server: see [poolers](../howto/poolers.md).",
    "data_dir": "Where the embedded PostgreSQL keeps its data.",
    "host": "Where the API listens. Anything beyond this machine needs keys.",
    "port": "The port of the API; 0 takes a free one. Where 8787 is taken and nobody chose, the next one that is free.",
    "metrics_port": "A port for `/metrics`, `/livez` and `/readyz` alone; 0 takes a free one.",
    "migrate": "Bring the schema of a database of your own up to date at the start.",
    "app": "The Python jobs to register and run.",
    "isolate": "Where Python jobs run that do not say: see [isolation](../howto/isolation.md).",
    "handler_processes": "How many processes run isolated Python jobs; `auto`: twice the processors, at least 4.",
    "allow_shell": "Run shell jobs here.",
    "allow_private_targets": "Let HTTP jobs call private addresses; `auto` is yes while listening on loopback only.",
    "concurrency": "How many runs a worker has under way at once.",
    "queues": "The queues that a worker serves.",
    "drain_seconds": "How long runs may go on after SIGTERM.",
    "lease_ttl_seconds": "How long a node that is silent is believed to be alive.",
    "coordinator": "What nominates who leads a partition: see [coordinators](../coordination.md).",
    "clock_step_limit_seconds": "A step of the database's clock beyond this holds all ticks; 0 is never.",
    "window_seconds": "How far ahead ticks are loaded into memory.",
    "misfire_grace_seconds": "How late a tick may still run, if its job does not say; `auto` goes by the interval.",
    "catchup_rate": "How fast a partition makes up for what it missed; `auto`: twice as fast as it ticks.",
    "history_days": "How long history is kept; older days are dropped, as whole partitions.",
    "revisions_kept": "How many former revisions of each job are kept; those that a live run needs always are.",
    "archive_url": "Where a day of history is written before it is dropped; unset, it is not.",
    "notify_url": "Who is told when a job is [not as expected](../howto/expectations.md), if the job does not say.",
    "notify_format": "What is sent there: detent's own JSON, or what Slack reads.",
    "notify_secret": "What messages are signed with; the second of two is on its way out.",
    "heartbeat_url": "A monitor outside, asked with GET for as long as the cluster does its work.",
    "heartbeat_seconds": "How often.",
    "traces": "Where [spans of runs](../howto/logs-and-traces.md) go: nowhere, or where `OTEL_…` variables say.",
    "trace_ratio": "Which share of all runs is traced.",
    "api_url": "The server that the command line asks.",
    "api_key": "The key that the command line shows there.",
    "log_format": "`auto` is pretty on a terminal and JSON elsewhere.",
    "log_level": "The least important lines to log.",
    "failpoints": "For the test suite: where to crash. Refused with `production`.",
    "production": "Refuse what is for tests only.",
    "max_payload_bytes": "The largest payload of a job.",
    "max_result_bytes": "How much of a result or of an output is kept.",
    "requests_per_second": "How fast one key may ask; 0 is no limit.",
}
UNSET = {
    "database_url": "the embedded one",
    "data_dir": "`~/.local/share/detent`; for root `/var/lib/detent`",
    "allow_private_targets": "`auto`",
    "misfire_grace_seconds": "`auto`",
    "catchup_rate": "`auto`",
    "handler_processes": "`auto`",
}
# Where the schema says less than the reader wants to know.
KINDS = {
    "target": "a [target](targets.md)",
    "schedule": "a [schedule](../schedules.md)",
    "starts_at": "time with an offset",
    "ends_at": "time with an offset",
}
SWITCHES = {True: "`true`", False: "`false`"}

# What Prometheus adds to the name of a family.
ENDINGS = {"counter": "_total", "info": "_info"}

TARGET_ADVICE = {
    ("http", "url"): "The address to call.",
    ("http", "method"): "How to call it. GET and HEAD send no payload.",
    ("http", "headers"): "Sent along. The command line shows their names only.",
    ("python", "function"): "A function of the workers' app: `module:name`, or the name it is registered under.",
    ("python", "isolate"): "`process`: in a process of its own, see [isolation](../howto/isolation.md).",
    ("shell", "command"): "A text for `/bin/sh -c`, or a list of words that is run as it is.",
    ("shell", "env"): "Added to the command's environment.",
}


def settings_table() -> str:
    rows = []
    for name, field in SETTINGS.items():
        default = UNSET.get(name) or default_text(field.default)
        extra = f" Also from the file that `DETENT_{name.upper()}_FILE` names." if field.metadata["secret"] else ""
        rows.append((f"`{name}`", default, f"{PURPOSES[name]}{extra}", field.metadata["give"]))
    return table(("setting", "default", "what it does", "give"), rows)


def default_text(default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, bool):
        return SWITCHES[default]
    if isinstance(default, tuple):
        return f"`{','.join(default)}`"
    if isinstance(default, float):
        return f"`{default:g}`"
    return f"`{default}`" if default != "" else "none"


def job_fields_table() -> str:
    _, parts = msgspec.json.schema_components([JobSpec], ref_template="{name}")
    schema = parts["JobSpec"]
    rows = []
    for name, field in schema["properties"].items():
        default = "**required**" if name in schema["required"] else json_default(field)
        rows.append((f"`{name}`", KINDS.get(name) or kind_text(field), default, FIELDS_BY_NAME[name].meaning))
    return table(("field", "value", "default", "meaning"), rows)


def targets_table() -> str:
    rows = []
    for kind, target in (("http", HttpTarget), ("python", PythonTarget), ("shell", ShellTarget)):
        _, parts = msgspec.json.schema_components([target], ref_template="{name}")
        schema = parts[target.__name__]
        for name, field in schema["properties"].items():
            if name == "type":
                continue
            default = "**required**" if name in schema["required"] else json_default(field)
            rows.append((f"`{kind}`", f"`{name}`", kind_text(field), default, TARGET_ADVICE[kind, name]))
    return table(("type", "field", "value", "default", "meaning"), rows)


def routes_table() -> str:
    rows = [
        (f"`{endpoint.method}`", f"`{endpoint.path}`", endpoint.scope, endpoint.summary)
        for part in PARTS
        for endpoint in part.routes.endpoints
    ]
    return table(("method", "path", "scope", "what it does"), rows)


def metrics_table() -> str:
    rows = []
    for family in every_metric():
        name = f"{family.name}{ENDINGS.get(family.type, '')}"
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        rows.append((f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), family.documentation))
    return table(("metric", "kind", "labels", "meaning"), rows)


def json_default(field: dict[str, Any]) -> str:
    value = field["default"]
    if value is None:
        return "none"
    if value in ([], {}):
        return "empty"
    return f"`{value}`" if isinstance(value, str) else f"`{msgspec.json.encode(value).decode()}`"


def kind_text(field: dict[str, Any]) -> str:
    """What a JSON Schema allows, in few words."""
    if "anyOf" in field:
        kinds = dict.fromkeys(kind_text(choice) for choice in field["anyOf"] if choice != {"type": "null"})
        return " or ".join(kinds)
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"] if value is not None)
    if "const" in field:
        return f"`{field['const']}`"
    if "$ref" in field:
        return f"{field['$ref'].removesuffix('Target').lower()} target"
    match field.get("type"):
        case "integer" | "number" as kind:
            return f"{'whole number' if kind == 'integer' else 'number'}{bounds_text(field)}"
        case "string":
            if field.get("format") == "date-time":
                return "time with an offset"
            return f"text of up to {field['maxLength']} characters" if "maxLength" in field else "text"
        case "boolean":
            return "`true`, `false`"
        case "array":
            return f"list of up to {field['maxItems']}" if "maxItems" in field else "list"
        case "object":
            return "object"
        case _:
            return "any JSON"


def bounds_text(field: dict[str, Any]) -> str:
    low, above, high = field.get("minimum"), field.get("exclusiveMinimum"), field.get("maximum")
    if low is None and above is None and high is None:
        return ""
    start = f"from {low}" if low is not None else f"above {above},"
    return f" {start} up to {high}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [tuple(head), *rows]
    written = [f"| {' | '.join(map(escaped, line))} |" for line in lines]
    written.insert(1, f"|{' --- |' * len(lines[0])}")
    return "\n".join(written) + "\n"


def escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "job fields": job_fields_table,
    "targets": targets_table,
    "routes": routes_table,
    "metrics": metrics_table,
}


def filled(text: str) -> str:
    """The page with its tables as the code has them now."""
    return _TABLE.sub(lambda found: f"{found['start']}\n{TABLES[found['name']]()}\n{found['end']}", text)


def pages_with_tables() -> list[Path]:
    return [page for page in sorted(DOCS.rglob("*.md")) if _TABLE.search(page.read_text("utf-8"))]


def main() -> None:
    for page in pages_with_tables():
        page.write_text(filled(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
