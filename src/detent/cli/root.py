"""`detent` itself, with all commands in the order of its help."""

from __future__ import annotations

import click

from detent.cli import apply, audit, cluster_hold, nodes
from detent.cli.adopt import db
from detent.cli.alert_rules import alert_rule
from detent.cli.audit_log import audit_log
from detent.cli.base import group
from detent.cli.bench import bench
from detent.cli.celery_beat import importing
from detent.cli.cluster import node
from detent.cli.config import config
from detent.cli.contexts import context
from detent.cli.cron import cron
from detent.cli.dead_letters import dlq
from detent.cli.demo import demo
from detent.cli.doctor.command import doctor
from detent.cli.history import history
from detent.cli.incidents import incident
from detent.cli.invocation import server_options
from detent.cli.job_history import job
from detent.cli.keys import key
from detent.cli.queues import queue
from detent.cli.roles import role
from detent.cli.run_logs import run
from detent.cli.secrets import secret
from detent.cli.tasks import task
from detent.cli.tenant_grants import tenant
from detent.cli.tools import completion, version
from detent.cli.top import top
from detent.version import __version__

root = group(
    "detent",
    "Cron for a fleet: every tick is recorded exactly once, as a run or with the reason why it did not run.\n\n"
    "\b\n"
    "For example:\n"
    "$ detent serve --demo\n"
    '$ detent job create hello --cron "*/5 * * * *" --url https://example.com/\n'
    "$ detent run list --watch",
)
root.epilog = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage (`diff --exit-code`: there are changes), 3 not found, "
    "4 not authorised, 5 the run failed, 6 conflict, 7 unavailable, 124 timed out."
)
server_options(hidden=False)(root)
click.version_option(__version__, message="detent %(version)s")(root)

for noun in (
    job,
    run,
    task,
    audit.explain,
    audit.audit,
    dlq,
    incident,
    alert_rule,
    cron,
    apply.apply,
    apply.diff,
    apply.validate,
    apply.export,
    importing,
    nodes.serve,
    nodes.scheduler,
    nodes.worker,
    nodes.api,
    demo,
    key,
    role,
    secret,
    tenant,
    audit_log,
    queue,
    history,
    node,
    top,
    cluster_hold.pause,
    cluster_hold.resume,
    doctor,
    context,
    config,
    db,
    bench,
    completion,
    version,
):
    root.add_command(noun)
