"""`detent import celery-beat`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.cli import output, times
from detent.cli.base import command, option
from detent.cli.crontab import checked_zone, create_jobs, importing, show_verdicts, verdict_documents, write_jobs
from detent.cli.invocation import api_options, invocation
from detent.errors import UsageError

if TYPE_CHECKING:
    from detent.declarative.celery_beat import BeatEntry, BeatOptions, BeatTranslation

__all__ = ["importing"]  # with the verbs of the other module and of this one

AGAIN = "detent import celery-beat … --yes"
AFTER = "Stop beat now, or every entry is sent twice"


@command(
    importing,
    "celery-beat",
    examples=(
        "detent import celery-beat --app shop.celery:app --dry-run",
        "detent import celery-beat --app shop.celery:app --output jobs.yaml",
        "detent import celery-beat --redbeat-url redis://redis/1 --app shop:app -y",
    ),
)
@option("--app", metavar="MODULE:NAME", help="The Celery app: its beat_schedule is read, and its tasks are sent.")
@option("--django-url", metavar="URL", help="Read the tables of django-celery-beat in this PostgreSQL instead.")
@option("--django-schema", default="public", metavar="NAME", help="With --django-url: the schema. [public]")
@option("--redbeat-url", metavar="URL", help="Read the keys of RedBeat in this Redis instead.")
@option("--key-prefix", default="redbeat:", metavar="TEXT", help="With --redbeat-url. [redbeat:]")
@option("--broker-url", metavar="URL", help="Send tasks to this broker, instead of with the app.")
@option("--result-backend", metavar="URL", help="With --broker-url: a run ends when its task ends.")
@option("--follow", is_flag=True, help="With --app: a run ends when its task ends, as its result backend says.")
@option("--timezone", "--tz", "timezone", metavar="ZONE", help="Zone of entries without one. [the app's, or UTC]")
@option("--prefix", default="", metavar="TEXT", help="Prefix of every job name.")
@option("--queue", metavar="NAME", help="The queue of the jobs in detent. [default]")
@option("--owner", metavar="LABEL", help="Owner of the jobs, see `detent apply --prune`.")
@option("--output", "-o", "path", metavar="FILE", help="Write the jobs to a file for `detent apply` instead.")
@option("--dry-run", is_flag=True, help="Only explain the entries; calls no server.")
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@api_options()
def celery_beat(path: str | None, dry_run: bool, yes: bool, **given: Any) -> int:
    """Import the schedule of Celery beat as jobs, whose tasks its workers execute.

    First every entry is explained: the job that it becomes and what differs,
    or why it cannot be imported.
    """
    from detent.declarative.celery_beat import translate_beat

    entries, options = _read(given)
    found = translate_beat(entries, options, times.now())
    _show(found, options)
    translation = found.translation
    if not translation.jobs:
        output.say("There is nothing to import.")
        return 1 if translation.refused else 0
    if path is not None:
        left_out = sorted(found.paused)
        if left_out:
            output.say(f"note: A file does not record that jobs are paused; left out: {', '.join(left_out)}.")
        return write_jobs([job for job in translation.jobs if job.name not in found.paused], options.owner, Path(path))
    if dry_run:
        return 0
    return create_jobs(translation.jobs, yes, AGAIN, AFTER, paused=found.paused)


def _read(given: dict[str, Any]) -> tuple[list[BeatEntry], BeatOptions]:
    from detent.cli.beat_sources import entries_of_app, entries_of_django, entries_of_redbeat, zone_of_app
    from detent.declarative.celery_beat import BeatOptions
    from detent.declarative.jobs_file import check_owner

    _check(given)
    app = _loaded(given["app"]) if given["app"] else None
    if given["django_url"]:
        entries = entries_of_django(given["django_url"], given["django_schema"])
    elif given["redbeat_url"]:
        entries = entries_of_redbeat(given["redbeat_url"], given["key_prefix"])
    else:
        entries = entries_of_app(app)
    zone = checked_zone(given["timezone"] or ("UTC" if app is None else zone_of_app(app)))
    owner = check_owner(given["owner"]) if given["owner"] else None
    return entries, BeatOptions(_target(given), zone, given["prefix"] or "", owner, given["queue"])


def _check(given: dict[str, Any]) -> None:
    if given["django_url"] and given["redbeat_url"]:
        raise UsageError("--django-url and --redbeat-url are both given: import one after the other.")
    if not given["app"] and not given["django_url"] and not given["redbeat_url"]:
        raise UsageError("There is no schedule to read: give --app, --django-url or --redbeat-url.")
    if not given["app"] and not given["broker_url"]:
        raise UsageError("It is not known where tasks are sent: give --app or --broker-url.")
    if given["result_backend"] and not given["broker_url"]:
        raise UsageError("--result-backend is given without --broker-url: an app has its own; give --follow to use it.")
    if given["follow"] and given["broker_url"]:
        raise UsageError("--follow is given with --broker-url: give --result-backend instead.")


def _target(given: dict[str, Any]) -> dict[str, Any]:
    if given["broker_url"]:
        results = {"result_backend": given["result_backend"]} if given["result_backend"] else {}
        return {"broker_url": given["broker_url"], **results}
    return {"app": given["app"]} if given["follow"] else {"app": given["app"], "ignore_result": True}


def _loaded(name: str) -> Any:
    import sys

    try:
        from detent.targets.celery.app_client import load_celery_app
    except ImportError as error:
        raise UsageError("Celery is not installed: install `detent[celery]` where the app is installed.") from error
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `celery -A` does
    try:
        return load_celery_app(name)
    except ImportError as error:
        raise UsageError("Celery is not installed: install `detent[celery]` where the app is installed.") from error


def _show(found: BeatTranslation, options: BeatOptions) -> None:
    if invocation().format == "json":
        lines = verdict_documents(found.translation, "entry")
        output.print_json({"timezone": options.timezone, "notes": found.translation.notes, "entries": lines})
        return
    show_verdicts(found.translation, f"Read in {options.timezone}.", "entry")
