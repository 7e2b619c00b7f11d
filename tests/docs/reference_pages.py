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

from detent.api.app import PARTS, all_endpoints
from detent.api.role_limits import knows_limits
from detent.domain.job import CeleryTarget, HttpTarget, JobSpec, PythonTarget, ShellTarget, TopicTarget
from detent.domain.job_fields import FIELDS_BY_NAME
from detent.domain.roles import PERMITTED, ROLES
from detent.settings.settings import SETTINGS
from detent.telemetry.exposition import every_metric

DOCS = Path(__file__).parents[2] / "docs"
_TABLE = re.compile(r"(?P<start><!-- table: (?P<name>[a-z ]+) -->\n).*?(?P<end><!-- end of table -->)", re.DOTALL)

# What each setting is for. The setting itself says how it is written.
PURPOSES = {
    "database_url": "The PostgreSQL to use; without one, the embedded PostgreSQL in `data_dir`.",
    "database_schema": "The schema that holds detent's tables.",
    "database_pooler": "The kind of pooler between detent and the server: see [poolers](../howto/poolers.md).",
    "data_dir": "The folder of the embedded PostgreSQL.",
    "host": "The address the API listens on. On any address but loopback it starts only if there is an API key.",
    "public_url": "Where others reach the API: [callbacks](../howto/callbacks.md) go there. Without it, to the address "
    "of the node that calls the target.",
    "port": "The port of the API; 0 takes a free one. If no port was set and 8787 is in use, the next free one.",
    "tls_cert": "The certificate to serve [HTTPS](../howto/tls.md) with; none: plain HTTP.",
    "tls_key": "The private key of `tls_cert`.",
    "tls_client_ca": "Clients need a certificate of these authorities.",
    "require_keys": "No request is answered without a key, not even one "
    "[from this machine](../howto/keys-and-tenants.md#who-needs-a-key).",
    "metrics_port": "A separate port for `/metrics`, `/livez` and `/readyz`; 0 takes a free one.",
    "migrate": "Apply pending migrations of your own database at start.",
    "app": "The Python jobs to register and run.",
    "isolate": "Where Python jobs run, unless the job sets it: see [isolation](../howto/isolation.md).",
    "handler_processes": "The number of processes for isolated Python jobs; `auto`: twice the processors, at least 4.",
    "allow_shell": "The tenants whose [shell jobs](../howto/shell-jobs.md) this worker runs; requires API keys.",
    "celery_apps": "The Celery apps whose tasks this worker sends, each open to one tenant: see "
    "[Celery](../howto/coming-from-celery.md#replace-beat-without-touching-the-workers).",
    "shell_user": "The system user that commands run as, instead of the user of the worker; needs root.",
    "concurrency": "How many runs a worker executes at once.",
    "breaker_failures": "After so many calls in a row that a host did not answer, its"
    " [circuit](../howto/dead-hosts.md) opens: runs wait, and use up no attempt. 0: never.",
    "breaker_max_pause_seconds": "The longest pause between two probes of such a host; the first pause is 1 s.",
    "http_host_concurrency": "How many calls a worker makes to one host (name and port) at the same time, of all "
    "tenants: see [calls per host](../howto/http-targets.md#calls-per-host). 0: any number.",
    "tenant_headroom": "The fraction of a worker's slots kept for tenants below their fair share: see"
    " [shares](../howto/queues-and-limits.md#tenant-shares); and from"
    " [hosts that do not answer](../howto/dead-hosts.md#slots-of-hosts-that-do-not-answer-yet). 0 keeps none.",
    "queues": "The queues that a worker serves.",
    "queue": "What tells workers of runs: PostgreSQL, or a broker: see [transports](../howto/transports.md).",
    "drain_seconds": "How long executing runs may continue after SIGTERM.",
    "lease_ttl_seconds": "How long a node may be silent before the others evict it.",
    "coordinator": "What elects the leaders of partitions: see [coordinators](../coordination.md).",
    "clock_step_limit_seconds": "A larger jump of the database's clock holds all ticks; 0: never.",
    "window_seconds": "How far ahead ticks are loaded into memory.",
    "misfire_grace_seconds": "How late a tick may run, unless its job sets it; `auto` depends on the interval.",
    "catchup_rate": "How fast a partition releases missed ticks; `auto`: twice its normal tick rate.",
    "history_days": "How long history is kept; older days are dropped as whole partitions.",
    "audit_days": "How long events of the [audit log](../howto/audit-log.md) are kept.",
    "revisions_kept": "How many former revisions of each job are kept, plus those that unfinished runs use.",
    "archive_url": "Where a day of history is archived before it is dropped; none: it is not archived.",
    "notify_url": "Where to report a missed [deadline](../howto/deadlines-and-alerts.md), unless the job sets it.",
    "notify_format": "The format of these messages: detent's own JSON, or Slack's.",
    "notify_secret": "The secret that signs messages. During a rotation, set the new and the old one.",
    "heartbeat_url": "An external monitor, called with GET while the cluster works.",
    "heartbeat_seconds": "The interval of these calls.",
    "secret_key": "The key that encrypts [secrets](../howto/secrets.md); during a change, the new and the old one.",
    "secret_environment": "Which variables of a worker jobs may use as `env:NAME`.",
    "secret_directory": "The folder whose files jobs may use as `file:NAME`.",
    "secret_provider_tenants": "The tenants whose jobs may use `env:` and `file:`.",
    "oidc_issuer": "The OpenID provider where [people](../howto/roles-and-people.md) log in to the dashboard.",
    "oidc_client_id": "The id of this server at the provider.",
    "oidc_client_secret": "Its secret there; none for a public client.",
    "oidc_redirect_url": "Where the provider sends browsers back to.",
    "oidc_scopes": "What is asked for at a login; some providers give groups or refresh tokens only for scopes.",
    "oidc_groups_claim": "The claim that lists the groups of a person.",
    "oidc_check_seconds": "How often the provider is asked whether a person may still be logged in.",
    "traces": "Where [spans of runs](../howto/logs-and-traces.md) go: nowhere, or where the `OTEL_…` variables say.",
    "trace_ratio": "The share of runs that is traced.",
    "api_url": "The server that the command line calls.",
    "api_key": "The key that the command line sends.",
    "ca_file": "The command line trusts only servers with a certificate of these authorities; none: the system's.",
    "client_cert": "The certificate that the command line shows to a server that [asks for one](../howto/tls.md).",
    "client_key": "The private key of `client_cert`; none: it is in the same file.",
    "log_format": "The format of log lines; `auto`: readable on a terminal, JSON elsewhere.",
    "log_level": "The lowest level that is logged.",
    "failpoints": "For the test suite: where the process crashes. Refused with `production`.",
    "production": "Refuse what is for tests and development only: failpoints, `--reload`.",
    "max_payload_bytes": "The largest payload of a job.",
    "run_log_bytes": "How much [output](../howto/run-output.md) of an attempt is stored: half from its beginning, half "
    "from its end; 0: none.",
    "max_result_bytes": "How much of a result or an output is stored.",
    "requests_per_second": "How many requests per second a tenant may send to all nodes together; 0: no limit.",
    "failed_keys_per_second": "How many keys that are not valid one network may send per second; 0: no limit.",
    "trusted_proxies": "The proxies whose `X-Forwarded-For` or `Forwarded` names the client: see "
    "[proxies](../howto/keys-and-tenants.md#behind-a-proxy).",
    "max_live_streams": "How many live pages of the dashboard a tenant may have open on one server.",
    "max_connections": "How many connections a server has at once; fewer if the process may not open so many files. "
    "One address may hold half of them, a trusted proxy all, the waiting claims of one tenant a quarter.",
    "max_header_bytes": "The largest request line and headers of a request, together.",
    "request_header_seconds": "How long the headers of a request may take.",
    "request_body_seconds": "How long the body of a request may take, and one second more for each MiB.",
    "max_request_memory_bytes": "How many bytes of request bodies, and of answers that are not read, a server holds; "
    "at least one payload.",
}
UNSET = {
    "database_url": "embedded PostgreSQL",
    "data_dir": "`~/.local/share/detent`; for root `/var/lib/detent`",
    "allow_shell": "none",
    "celery_apps": "none",
    "misfire_grace_seconds": "`auto`",
    "catchup_rate": "`auto`",
    "handler_processes": "`auto`",
}
# Where the JSON schema says too little.
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
    (
        "http",
        "url",
    ): "The URL to call. It may have [placeholders](../howto/http-targets.md#templates) behind the host, as "
    "the values of headers and the body.",
    ("http", "method"): "The HTTP method. GET and HEAD send no payload.",
    (
        "http",
        "body",
    ): "The [body](../howto/http-targets.md#the-body) instead of the payload: a text, or a document whose "
    "texts have placeholders.",
    (
        "http",
        "statuses",
    ): "What statuses mean: lists `success`, `retry` and `no_retry` of statuses and classes such as `5xx`. See "
    "[answers](../howto/http-targets.md#how-an-answer-is-read).",
    ("http", "host_concurrency"): "How many calls to the host a worker makes at the same time: see "
    "[calls per host](../howto/http-targets.md#calls-per-host).",
    (
        "http",
        "headers",
    ): "Additional headers, each text or a [secret](../howto/secrets.md). `detent job get` shows only their names, "
    "because values are often secret.",
    ("http", "tls"): "Certificates for an `https://` address: see [mutual TLS](../howto/tls.md).",
    (
        "http",
        "callback",
    ): "An answer 202 does not end the run: the target [reports its end](../howto/callbacks.md). Its `lease_seconds`, "
    "60 by default, are the longest time without a heartbeat.",
    ("python", "function"): "A function of the app that workers load (`--app`): `module:name`, or the name it is "
    "registered under.",
    ("python", "isolate"): "`process` runs it in a separate process: see [isolation](../howto/isolation.md).",
    ("shell", "command"): "A string for `/bin/sh -c`, or a list of words that is run directly.",
    ("shell", "env"): "Additional environment variables of the command, each text or a [secret](../howto/secrets.md).",
    ("topic", "url"): "The server of the broker: see [topics](../howto/topics.md). It has no user name or password.",
    ("topic", "topic"): "The topic, queue, stream or subject that gets the message.",
    ("topic", "key"): "Messages with the same key keep their order, where the broker has one. Without it: the id of "
    "the job.",
    ("topic", "headers"): "Additional headers of the message, each text or a [secret](../howto/secrets.md).",
    ("topic", "format"): "`cloudevents` sends the payload as a CloudEvent 1.0.",
    ("topic", "credentials"): "`username`, and `password` as a [secret](../howto/secrets.md).",
    ("topic", "tls"): "Certificates for a scheme with TLS, as for HTTP: see [mutual TLS](../howto/tls.md).",
    ("celery", "task"): "The name of the task.",
    ("celery", "app"): "The Celery app, `module:name`, which workers have by `celery_apps`. Either this or "
    "`broker_url`.",
    ("celery", "broker_url"): "`redis://`, `rediss://`, `amqp://` or `amqps://` with host, port and database or "
    "virtual host.",
    ("celery", "result_backend"): "With `broker_url`: a `redis://` or `rediss://` where workers store results. The run "
    "then ends when the task ends.",
    ("celery", "args"): "Positional arguments. A list in the payload replaces them.",
    ("celery", "kwargs"): "Keyword arguments. An object in the payload is merged over them.",
    ("celery", "queue"): "The queue of the Celery workers; none: where the app routes the task, or `celery`.",
    ("celery", "priority"): "The priority of the message, as the broker of the app reads it.",
    ("celery", "expires"): "Workers discard the task so many seconds after it was sent.",
    ("celery", "ignore_result"): "With `app`: the run ends when the task is sent, although the app has a result "
    "backend.",
    ("celery", "credentials"): "With `broker_url`: `username`, and `password` as a [secret](../howto/secrets.md).",
    ("celery", "result_credentials"): "The same for `result_backend`; none: those of the broker, if both are the same "
    "host and port.",
}


TARGET_KINDS: dict[str, type[msgspec.Struct]] = {
    "http": HttpTarget,
    "python": PythonTarget,
    "shell": ShellTarget,
    "topic": TopicTarget,
    "celery": CeleryTarget,
}


def settings_table() -> str:
    rows = []
    for name, field in SETTINGS.items():
        default = UNSET.get(name) or default_text(field.default)
        extra = f" Also from the file that `DETENT_{name.upper()}_FILE` names." if field.metadata["secret"] else ""
        rows.append((f"`{name}`", default, f"{PURPOSES[name]}{extra}", field.metadata["give"]))
    return table(("setting", "default", "what it does", "accepted values"), rows)


def default_text(default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, bool):
        return SWITCHES[default]
    if isinstance(default, tuple):
        return f"`{','.join(default)}`" if default else "none"
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
    for kind, target in TARGET_KINDS.items():
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


def roles_table() -> str:
    rows = []
    for endpoint in all_endpoints():
        permitted = ["✓" if endpoint.scope in ("public", *PERMITTED[role]) else "" for role in ROLES]
        limited = "✓" if endpoint.scope == "public" or knows_limits(endpoint.path) else ""
        rows.append((f"`{endpoint.method}`", f"`{endpoint.path}`", *permitted, limited))
    return table(("method", "path", *ROLES, "with a limit"), rows)


def metrics_table() -> str:
    rows = []
    for family in every_metric():
        name = f"{family.name}{ENDINGS.get(family.type, '')}"
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        rows.append((f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), family.documentation))
    return table(("metric", "kind", "labels", "meaning"), rows)


def json_default(field: dict[str, Any]) -> str:
    value = field.get("default")
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
        name = field["$ref"].rpartition("/")[2]
        return f"{name.removesuffix('Target').lower()} target" if name.endswith("Target") else "object"
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
            return f"list of up to {field['maxItems']} items" if "maxItems" in field else "list"
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
    lines = [tuple(head), *map(tuple, rows)]
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
    "roles": roles_table,
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
