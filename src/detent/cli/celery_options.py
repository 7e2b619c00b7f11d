"""The options of `detent job create` for Celery targets, and the target that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detent.cli.base import option
from detent.errors import UsageError

# By the field of the target.
CELERY_FLAGS = {
    "app": ("celery_app", "--celery-app"),
    "broker_url": ("broker_url", "--broker-url"),
    "result_backend": ("result_backend", "--result-backend"),
    "queue": ("celery_queue", "--celery-queue"),
}

CELERY_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option("--celery", metavar="TASK", help="Send this task of a Celery app to its workers.", panel="Target"),
    option(
        "--celery-app",
        metavar="MODULE:NAME",
        help="With --celery: the app, which workers have by --celery-apps.",
        panel="Target",
    ),
    option("--broker-url", metavar="URL", help="With --celery: the broker, instead of an app.", panel="Target"),
    option(
        "--result-backend",
        metavar="URL",
        help="With --broker-url: where results are; the run then ends with the task.",
        panel="Target",
    ),
    option("--celery-queue", metavar="NAME", help="With --celery: the queue of its workers.", panel="Target"),
)


def check_celery_flags(flags: Mapping[str, Any]) -> None:
    """For a job with another target."""
    for key, flag in CELERY_FLAGS.values():
        if flags[key]:
            raise UsageError(f"{flag} is given without --celery: it applies to Celery tasks only.")


def celery_target(flags: Mapping[str, Any]) -> dict[str, Any]:
    given = {field: flags[key] for field, (key, _) in CELERY_FLAGS.items() if flags[key]}
    return {"type": "celery", "task": flags["celery"], **given}
