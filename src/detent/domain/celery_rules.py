"""What a Celery target may say: its app or broker, its task, and the arguments that a payload gives. No I/O.

A broker's URL has few forms here. Clients of Celery read much more into one: classes to import, files, options of the
connection. A tenant could make a worker load code or reach addresses that its rules do not cover.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from detent.domain.job import CeleryTarget, JobSpec, TargetCredentials
from detent.domain.references import references_in
from detent.domain.refusal import pointer_to
from detent.domain.target_url import TargetError, check_url

BROKERS = ("redis", "rediss", "amqp", "amqps")
RESULT_BACKENDS = ("redis", "rediss")
PORTS = {"redis": 6379, "rediss": 6379, "amqp": 5672, "amqps": 5671}

_APP = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#;]*)(?:/(?P<path>[^?#;]*))?(?P<rest>.*)")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f]")


class CeleryServer(NamedTuple):
    """A broker or result backend, as a URL names it."""

    scheme: str
    host: str
    port: int
    path: str
    """The number of the database, or the virtual host; empty: the first one, or `/`."""

    @property
    def tls(self) -> bool:
        return self.scheme in ("rediss", "amqps")

    @property
    def label(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class TaskArguments(NamedTuple):
    args: Sequence[Any]
    kwargs: dict[str, Any]


def check_celery(target: CeleryTarget) -> None:
    _check_names(target)
    for name, server in (("broker_url", target.broker_url), ("result_backend", target.result_backend)):
        if server is not None:
            read_server(server, name)
    for name, credentials in (("credentials", target.credentials), ("result_credentials", target.result_credentials)):
        if isinstance(credentials, TargetCredentials):
            _check_credentials(name, credentials)
    for name, values in (("args", target.args), ("kwargs", target.kwargs)):
        if next(references_in(values), None) is not None:
            raise _fault(name, f"A secret is named in {name}, where it is not filled in; move it into the payload.")


def _check_names(target: CeleryTarget) -> None:
    if (target.app is None) == (target.broker_url is None):
        both = "both are given" if target.app is not None else "neither is given"
        raise _fault("app", f"A Celery task needs an app or a broker_url, and {both}; give exactly one of the two.")
    if target.app is not None and not _APP.fullmatch(target.app):
        raise _fault("app", f"{target.app!r} is not an app; write MODULE:NAME, such as shop.celery:app.")
    for name in ("task", "queue"):
        if _UNSEEN.search(getattr(target, name) or "") or not (getattr(target, name) or "-").strip():
            raise _fault(
                name, f"The name of the {name} is blank or has control characters; write it as Celery shows it."
            )
    if target.app is not None:
        for name in ("result_backend", "credentials", "result_credentials"):
            if getattr(target, name):
                raise _fault(name, f"{name} is given with an app, which has its own; remove it, or use broker_url.")
    elif target.ignore_result:
        advice = "remove ignore_result, and result_backend too if the run is to end as sent."
        raise _fault("ignore_result", f"ignore_result is for an app, whose result backend is known to it; {advice}")
    elif target.result_credentials and target.result_backend is None:
        raise _fault("result_credentials", "result_credentials are given without a result_backend; remove them.")


def _check_credentials(name: str, credentials: TargetCredentials) -> None:
    if isinstance(credentials.password, str):
        raise TargetError(
            pointer_to("target", name, "password"),
            "The password is given as plain text; store it with `detent secret set NAME`, and write "
            '{"secret": "NAME"}.',
        )
    if credentials.username is None and credentials.password is None:
        raise _fault(name, f"{name} are empty; give username or password, or remove them.")


def read_server(url: str, field: str) -> CeleryServer:
    """The parts of the URL in this field of the target; raises TargetError."""
    known = BROKERS if field == "broker_url" else RESULT_BACKENDS
    example = f"{known[0]}://host:{PORTS[known[0]]}/0"
    parts = _URL.fullmatch(url)
    scheme = url.partition(":")[0].lower()
    if parts is None or scheme not in known:
        others = "" if scheme in known else f"; schemes are {', '.join(known)}, and an app can use any other"
        raise _fault(field, f"{shown_url(url)} is not an address that can be used here{others}. Write {example}.")
    if "@" in parts["authority"]:
        raise _fault(field, "The URL contains a user name or password; give credentials with a secret instead.")
    if parts["rest"]:
        raise _fault(field, f"The URL has more than a host and a path ({parts['rest'][:1]}…); write {example}.")
    host, port = _host_and_port(parts["authority"], scheme, field)
    return CeleryServer(scheme, host, port, _path(parts["path"] or "", scheme, field))


def shown_url(url: str) -> str:
    """For a message: without what may be a password."""
    return repr(re.sub(r"//.*@", "//…@", url)[:200])


def _host_and_port(authority: str, scheme: str, field: str) -> tuple[str, int]:
    try:
        check_url(f"http://{authority}/")
    except TargetError as error:
        raise _fault(field, error.message) from None
    host, _, port = authority.rpartition(":") if re.search(r":\d+$", authority) else (authority, "", "")
    return host.strip("[]").lower(), int(port) if port else PORTS[scheme]


def _path(path: str, scheme: str, field: str) -> str:
    if scheme.startswith("redis") and not re.fullmatch(r"\d{0,5}", path):
        raise _fault(field, f"The database of Redis is {path!r}; write its number, such as redis://host:6379/0.")
    if _UNSEEN.search(unquote(path)):
        raise _fault(field, "The virtual host has control characters; remove them.")
    return unquote(path)


def check_task_payload(spec: JobSpec) -> None:
    """Refused at registration, because every run would fail."""
    if isinstance(spec.target, CeleryTarget):
        arguments_of(spec.target, spec.payload)


def arguments_of(target: CeleryTarget, payload: Any) -> TaskArguments:
    """An object in the payload has keyword arguments, over those of the target; a list has positional ones, instead of
    those of the target. Raises TargetError for anything else."""
    if payload is None:
        return TaskArguments(target.args, target.kwargs)
    if isinstance(payload, dict):
        return TaskArguments(target.args, {**target.kwargs, **payload})
    if isinstance(payload, list):
        return TaskArguments(payload, target.kwargs)
    raise TargetError(
        "/payload",
        "The payload of a Celery task is an object with keyword arguments or a list of positional ones; "
        "write a single argument as a list of one.",
    )


def _fault(field: str, sentence: str) -> TargetError:
    return TargetError(pointer_to("target", field), sentence)
