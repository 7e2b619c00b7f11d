"""From a command of a crontab to a target, with remarks about the command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from detent.declarative.crontab_lines import CronJob

POSIX_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh", "ash", "busybox"})
DEFAULT_SHELL = "/bin/sh"
END = "DETENT_STDIN"

_DISCARDS = re.compile(r">\s*/dev/null\s+2>&1|&>\s*/dev/null")
_RELATIVE = re.compile(r"(?:^|[;&|(]\s*)\.{1,2}/")


def target_for(
    job: CronJob, shell: str, env: Mapping[str, str], name: str, url: str | None, remarks: list[str]
) -> dict[str, Any]:
    """The fields `target` and, where there is something to send, `payload`."""
    if url is not None:
        payload: dict[str, Any] = {"command": job.command}
        if env:
            payload["env"] = dict(env)
        if job.stdin is not None:
            payload["stdin"] = job.stdin
            remarks.append("What follows % is sent along as stdin in the payload.")
        if job.user is not None:
            payload["user"] = job.user
        return {"target": {"type": "http", "url": url.replace("{name}", name)}, "payload": payload}
    command = _with_stdin(job, shell, remarks)
    target: dict[str, Any] = {"type": "shell", "command": command if shell == DEFAULT_SHELL else [shell, "-c", command]}
    if env:
        target["env"] = dict(env)
    return {"target": target}


def _with_stdin(job: CronJob, shell: str, remarks: list[str]) -> str:
    """What follows % as a here-document: a payload would reach the command as JSON, quotes and all."""
    if job.stdin is None:
        return job.command
    if shell.rsplit("/", 1)[-1] not in POSIX_SHELLS:
        remarks.append(f"What follows % is its standard input, which is lost here: {shell} is not a POSIX shell.")
        return job.command
    lines = job.stdin.count("\n") + 1
    remarks.append(
        f"What follows % is its standard input ({lines} line{'s' if lines > 1 else ''}): "
        "kept as a here-document after the command."
    )
    end = END
    while end in job.stdin.split("\n"):
        end += "_"
    return f"{{ {job.command}\n}} <<'{end}'\n{job.stdin}\n{end}"


def hints(job: CronJob) -> Iterator[str]:
    """What detent does better than the command does itself."""
    words = job.command.split()
    if job.quiet:
        yield "The dash before it kept cron from logging it; detent records every run."
    if "flock" in words:
        yield "detent skips a tick while the last run is not over, on every node: flock may not be needed."
    if re.search(r"\bsleep\b.*RANDOM", job.command):
        yield "To spread starts, jitter_seconds does what sleep and RANDOM do here, without holding a worker."
    if _DISCARDS.search(job.command):
        yield "It discards its output: without > /dev/null detent would keep it with each run."
    if _RELATIVE.search(job.command):
        yield "It uses a relative path, and detent starts it in an empty folder: write the absolute path."
    if re.search(r"(?<!\\)`|\$\(.*\bdate\b", job.command):
        yield "It asks for the date: DETENT_SCHEDULED_AT is the time of the tick, also when the run is late."
