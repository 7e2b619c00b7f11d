"""`detent serve`, `scheduler`, `worker` and `api`: flags become settings, and the node runs until it is stopped.

Flags are passed on as text, so that flags, environment and file go through the same checks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from detent.cli.base import F, command, option
from detent.cli.invocation import config_option, load_settings
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.devtools.demo import LiveDemo
    from detent.settings.settings import Settings

PANEL = "Start detent"


def _options(*made: Callable[[F], F]) -> Callable[[F], F]:
    def add(function: F) -> F:
        for one in reversed(made):
            function = one(function)
        return function

    return add


def _switch(name: str, text: str, **settings: Any) -> Callable[[F], F]:
    """A flag whose default is None, so that the environment and the file apply when it is not given."""
    return option(name, is_flag=True, flag_value=True, default=None, help=text, **settings)


database_options = _options(
    option(
        "--database-url", metavar="URL", help="PostgreSQL 15 or later. [the embedded PostgreSQL in the data folder]"
    ),
    option("--database-pooler", metavar="none|transaction", help="Pooler in front of the database. [none]"),
    option("--data-dir", metavar="DIR", help="Data folder of the embedded PostgreSQL."),
)

_listening = _options(
    option("--host", metavar="ADDRESS", help="Listen on this address. [127.0.0.1]"),
    option("--port", metavar="PORT", help="Listen on this port; 0 picks a free one. [8787, or the next free port]"),
    option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate, in PEM form. [plain HTTP]"),
    option("--tls-key", metavar="FILE", help="The private key of --tls-cert, in PEM form."),
    option("--tls-client-ca", metavar="FILE", help="Refuse clients without a certificate of these authorities."),
    _switch("--require-keys", "Start only if the cluster has a key, and never answer a request without one."),
)

_probing = option(
    "--metrics-port", metavar="PORT", help="Serve /metrics, /livez and /readyz on this port, without a key."
)
_probing_alone = _options(
    _probing, option("--host", metavar="ADDRESS", help="Listen for --metrics-port on this address. [127.0.0.1]")
)

_working = _options(
    option("--app", metavar="MODULE:NAME", help="The app with the Python handlers, such as shop.jobs:app."),
    option("--concurrency", metavar="N", help="Maximum runs at the same time. [100]"),
    option(
        "--tenant-headroom",
        metavar="PART",
        help="Fraction of the slots kept from silent hosts, and for tenants below their fair share. [0.2]",
    ),
    option(
        *("--queue", "--queues", "queues"),
        metavar="NAME",
        multiple=True,
        help="Claim runs of this queue; may be repeated. [default]",
    ),
    option("--isolate", metavar="thread|process", help="Where Python jobs run by default. [thread]"),
    option(
        "--handler-processes",
        metavar="N",
        help="Processes for isolated Python jobs. [twice the CPUs, at least 4]",
    ),
    option(
        "--allow-shell",
        metavar="TENANTS",
        help="Run shell jobs of these tenants, such as default,ops. Anyone with a key that can create their jobs can "
        "run commands on this machine.",
    ),
    option(
        "--celery-apps",
        metavar="APPS",
        help="Send tasks of these Celery apps, such as shop.celery:app; open to the default tenant, or to the one in "
        "shop.celery:app@TENANT.",
    ),
    option("--shell-user", metavar="NAME", help="Run commands as this user; needs root. [the user of the worker]"),
)

_reloading = _options(
    option(
        "--reload", is_flag=True, help="For development: start again when Python files change. Needs detent[reload]."
    ),
    option("--reloaded", "supervisor", type=int, hidden=True),
)

_running = _options(
    _switch("--migrate", "Migrate the schema of an external database first."),
    option("--drain-seconds", metavar="SECONDS", help="Time to finish current work, such as runs, after SIGTERM. [30]"),
    option(
        "--log-format", metavar="auto|json|pretty", help="Format of log lines. [auto: pretty on a terminal, else JSON]"
    ),
    option("--log-level", metavar="debug|info|warning|error", help="Lowest level that is logged. [info]"),
    option("--failpoints", metavar="LIST", hidden=True),
    config_option(hidden=False),
)


@command(
    None,
    "serve",
    panel=PANEL,
    examples=(
        "detent serve",
        "detent serve --demo",
        "detent serve --database-url postgresql://user@host/detent --migrate",
    ),
)
@_listening
@database_options
@_working
@_probing
@_reloading
@_running
@option("--demo", is_flag=True, help="Add three example jobs, and the endpoint /demo/echo.")
def serve(demo: bool, **flags: Any) -> int:
    """Start API, scheduler and worker in one process.

    Without --database-url it also starts an embedded PostgreSQL. Ctrl-C stops
    detent; PostgreSQL stops with the last process that uses it.
    """
    return _start(flags, ("api", "scheduler", "worker"), demo)


@command(
    None,
    "scheduler",
    panel=PANEL,
    examples=("detent scheduler --database-url postgresql://user@host/detent",),
)
@database_options
@_probing_alone
@_running
def scheduler(**flags: Any) -> int:
    """Start a scheduler: it fires ticks and runs no jobs."""
    return _start(flags, ("scheduler",))


@command(None, "worker", panel=PANEL, examples=("detent worker --app shop.jobs:app --queue default --queue slow",))
@database_options
@_working
@_probing_alone
@_reloading
@_running
def worker(**flags: Any) -> int:
    """Start a worker: it runs what the schedulers have fired."""
    return _start(flags, ("worker",))


@command(None, "api", panel=PANEL, examples=("detent api --port 8787",))
@_listening
@database_options
@_probing
@_running
def api(**flags: Any) -> int:
    """Start an API server: it neither fires ticks nor runs jobs."""
    return _start(flags, ("api",))


def _start(flags: dict[str, Any], roles: tuple[str, ...], demo: bool = False) -> int:
    reload, supervisor = flags.pop("reload", False), flags.pop("supervisor", None)
    settings = load_settings(flags)
    if demo and settings.tls_given:
        raise UsageError("--demo calls this server without TLS: leave out --tls-cert, --tls-key and --tls-client-ca.")
    if reload:
        return _supervise(settings, demo)
    from detent.node import process

    chosen = _first_look() if demo else None
    if supervisor is None:
        return process.run(settings, roles=roles, demo=chosen)
    try:
        return process.run(settings, roles=roles, demo=chosen, supervisor=supervisor)
    except UsageError as error:
        from detent.node.apps import print_cause

        print_cause(error)
        raise


def _supervise(settings: Settings, demo: bool) -> int:
    from detent.node.reload import check_reload, supervise, watched_folders

    if demo:
        raise UsageError("--demo has no code to reload: leave out --reload.")
    check_reload(settings)
    return supervise(settings, [sys.executable, "-m", "detent", *sys.argv[1:]], watched_folders(settings))


def _first_look() -> LiveDemo:
    from detent.devtools.demo import LiveDemo

    return LiveDemo()
