"""The options of `detent job create` for the bodies, statuses and limits of HTTP targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from detent.cli.base import option
from detent.errors import UsageError

STATUSES = {
    "success": ("--success-status", "a status that is a success, such as 304 or 2xx; may be repeated. [2xx]"),
    "retry": ("--retry-status", "a status that is retried as well, such as 409; may be repeated."),
    "no_retry": ("--no-retry-status", "a status that is not retried, such as 501; may be repeated."),
}
HTTP_FLAGS = {
    "body": "--body",
    **{f"{name}_status": flag for name, (flag, _) in STATUSES.items()},
    "host_concurrency": "--host-concurrency",
}

HTTP_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option(
        "--body",
        metavar="TEXT",
        help="With --url: the body, instead of the payload; @FILE or - for stdin. It may have placeholders, as the URL "
        "and headers: {{ scheduled_at.date }}.",
        panel="Target",
    ),
    *(
        option(flag, f"{name}_status", metavar="STATUS", multiple=True, help=f"With --url: {words}", panel="Target")
        for name, (flag, words) in STATUSES.items()
    ),
    option(
        "--host-concurrency",
        metavar="N",
        help="With --url: how many calls to the host a worker makes at the same time. [any number]",
        panel="Target",
    ),
)


def check_http_flags(flags: Mapping[str, Any]) -> None:
    """For a job with another target."""
    for key, flag in HTTP_FLAGS.items():
        if flags[key] not in (None, ()):
            raise UsageError(f"{flag} is given without --url: it applies to HTTP targets only.")


def http_parts(flags: Mapping[str, Any], read_text: Callable[[str, str], str]) -> dict[str, Any]:
    """The members of the target. `read_text` reads the file that an option names."""
    parts: dict[str, Any] = {}
    if flags["body"] is not None:
        parts["body"] = _body(flags["body"], read_text)
    statuses = {name: _statuses(flags[f"{name}_status"]) for name in STATUSES if flags[f"{name}_status"]}
    if statuses:
        parts["statuses"] = statuses
    if flags["host_concurrency"] is not None:
        limit = flags["host_concurrency"]
        if not (limit.isascii() and limit.isdigit()):
            raise UsageError(f"--host-concurrency is {limit!r}: give a whole number.")
        parts["host_concurrency"] = int(limit)
    return parts


def _body(given: str, read_text: Callable[[str, str], str]) -> object:
    from detent.domain.http_body import read_body  # not needed for help

    if given == "-":
        return read_body(read_text("--body", given))
    return read_body(read_text("--body", given[1:]) if given.startswith("@") else given)


def _statuses(given: Sequence[str]) -> list[object]:
    """Words that are no numbers are left to the server, which says what is wrong with them."""
    words = [word.strip() for each in given for word in each.split(",")]
    return [int(word) if word.isascii() and word.isdigit() and len(word) < 10 else word for word in words]
