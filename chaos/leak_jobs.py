"""The planted values of `chaos/secret_leaks.py`, and jobs of every kind that repeat all they get."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
import string
from collections.abc import Mapping
from typing import Any, NamedTuple

from detent.domain.webhooks import read_signing_key
from tests.secrets.echo import Received

CORE = 20
STORED = ("stored", "quoted", "lines")
PROVIDED = {"variable": "env:PLANTED_TOKEN", "file": "file:planted-file"}
MISSING = "env:PLANTED_NOTHING"
REFERENCES = {name: {"secret": name} for name in STORED} | {
    name: {"secret": reference} for name, reference in PROVIDED.items()
}

APP = """
import hashlib
import logging

from detent import Detent

app = Detent("careless")
log = logging.getLogger("careless.library")


def tell(run):
    for name, digest in run.payload["digests"].items():
        if hashlib.sha256(str(run.payload[name]).encode()).hexdigest() != digest:
            raise LookupError(f"the value of {name} is wrong")
    run.log.warning("the payload is %s", run.payload)
    log.warning("a library logs %r", run.payload)
    try:
        raise ValueError(f"bad value {run.payload['quoted']}")
    except ValueError:
        log.exception("with a traceback of %s", run.payload["lines"])


@app.function("returns")
def returns(run):
    tell(run)
    return {"seen": run.payload, "repr": repr(run.payload)}


@app.function("raises")
async def raises(run):
    tell(run)
    raise RuntimeError(f"failed with {run.payload}")
"""

SHELL = (
    'test "$(printf %s "$QUOTED" | sha256sum | cut -c1-64)" = "$DIGEST" || { echo the value is wrong; exit 9; }; '
    'env; cat; echo "$QUOTED" >&2; printf %s "$TOKEN$FROM_FILE"; exit '
)


class Planted:
    """Values with a core of random letters and digits, which no escape changes: who searches for the core also finds
    the value inside quotes inside quotes."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.cores = {name: _core(chance) for name in (*STORED, "more lines", *PROVIDED)}
        self.literal = _core(chance)
        lines = f"-----BEGIN KEY-----\n{self.cores['lines']}\n{self.cores['more lines']}\n-----END KEY-----\n"
        self.values = {
            "stored": f"Bearer {self.cores['stored']}/+=",
            "quoted": f'{self.cores["quoted"]} "<&>" \\ ü',
            "lines": lines,
            "variable": f"{self.cores['variable']}.of-the-environment",
            "file": f"{self.cores['file']}.of-a-file",
        }
        self.signing: list[str] = []

    @property
    def digests(self) -> dict[str, str]:
        return {name: hashlib.sha256(value.encode()).hexdigest() for name, value in self.values.items()}


def _core(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_letters + string.digits, k=CORE))


class Plan(NamedTuple):
    """A job, and the text that errors of its attempts have; none: every attempt succeeds, unless its node dies."""

    document: dict[str, Any]
    error: str | None = None


GOOD = {"timeout_seconds": 60, "max_retries": 10, "retry_base_seconds": 0.2, "retry_max_seconds": 2}
BAD = {"timeout_seconds": 60, "max_retries": 1, "retry_base_seconds": 0.2}


def plans(planted: Planted, url: str) -> dict[str, Plan]:
    headers = {
        "Authorization": REFERENCES["stored"],
        "X-Variable": REFERENCES["variable"],
        "X-File": REFERENCES["file"],
    }
    literal = {"Authorization": f"Bearer {planted.literal}", "X-Api-Key": planted.literal}
    hang = {"timeout_seconds": 1.5, "max_retries": 0, "expect_finish_within": 1, "notify_url": f"{url}/notice"}
    made = {
        "http-ok": Plan({"target": _http(url, "ok", headers), **GOOD, "signing": {"secret": "signing"}}),
        "http-fail": Plan({"target": _http(url, "fail", headers), **BAD}, "500"),
        "http-hang": Plan({"target": _http(url, "hang", headers), **BAD, **hang}, "No answer within"),
        "literal-ok": Plan({"target": _http(url, "ok", literal), **GOOD}),
        "literal-fail": Plan({"target": _http(url, "fail", literal), **BAD}, "500"),
        "missing": Plan({"target": _http(url, "ok", headers), "payload": {"secret": MISSING}, **BAD}, MISSING),
        "shell-ok": Plan({"target": _shell(planted, 0), **GOOD}),
        "shell-fail": Plan({"target": _shell(planted, 3), **BAD}, "status 3"),
    }
    for name, isolate in (("", "thread"), ("-apart", "process")):
        python = {"type": "python", "isolate": isolate}
        made[f"returns{name}"] = Plan({"target": {**python, "function": "returns"}, **GOOD})
        made[f"raises{name}"] = Plan({"target": {**python, "function": "raises"}, **BAD}, "failed with")
    for queue in ("plain", "secrets"):
        pulled = {"target": {"type": "python", "function": "elsewhere"}, "queue": queue}
        made[f"pull-{queue}-ok"] = Plan({**pulled, **GOOD})
        made[f"pull-{queue}-fail"] = Plan({**pulled, **BAD}, "the worker says")
    shared = {"payload": {**REFERENCES, "digests": planted.digests}, "concurrent_policy": "ALLOW", "max_concurrent": 50}
    return {name: plan._replace(document={"name": name, **shared, **plan.document}) for name, plan in made.items()}


def _http(url: str, mode: str, headers: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "http", "url": f"{url}/{mode}", "headers": dict(headers)}


def _shell(planted: Planted, code: int) -> dict[str, Any]:
    env = {"QUOTED": REFERENCES["quoted"], "TOKEN": REFERENCES["variable"], "FROM_FILE": REFERENCES["file"]}
    return {"type": "shell", "command": f"{SHELL}{code}", "env": {**env, "DIGEST": planted.digests["quoted"]}}


# --- what the targets got ---


def is_complete(call: Received, planted: Planted) -> bool:
    """Whether a call of a job with references had all their values."""
    values, headers = planted.values, call.headers
    names = {"Authorization": "stored", "X-Variable": "variable", "X-File": "file"}
    sent = all(headers.get(header) == values[name] for header, name in names.items())
    return sent and all(_escaped(value) in call.body for value in values.values())


def _escaped(value: str) -> bytes:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").encode()


def is_signed(call: Received, planted: Planted) -> bool:
    """Whether each signature of a call is by a planted key; there may be several while a former key is valid."""
    text = f"{call.headers.get('webhook-id')}.{call.headers.get('webhook-timestamp')}.".encode() + call.body
    keys = [key for key in map(read_signing_key, planted.signing) if key is not None]
    valid = {f"v1,{base64.b64encode(hmac.digest(key, text, 'sha256')).decode()}" for key in keys}
    signatures = call.headers.get("webhook-signature", "").split()
    return bool(signatures) and set(signatures) <= valid
