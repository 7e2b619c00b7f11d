"""How each kind of setting is read, from text or from a TOML value: the value, or a ValueError."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

from detent.domain.secret_keys import read_master_keys

ARCHIVES = ("file", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss")

CALLBACK_PATH = "/login/oidc/callback"

Reader = Callable[[object], object]


def text(pattern: str = r"[^\x00]+") -> Reader:
    matches = re.compile(pattern).fullmatch

    def read(raw: object) -> str:
        if not isinstance(raw, str) or not matches(raw):
            raise ValueError
        return raw

    return read


def url(*schemes: str) -> Reader:
    def read(raw: object) -> str:
        if not isinstance(raw, str) or "\0" in raw:
            raise ValueError
        parts = urlsplit(raw)
        # A PostgreSQL address may name a socket folder in its query instead of a host.
        if parts.scheme not in schemes or "://" not in raw or not (parts.netloc or "postgresql" in schemes):
            raise ValueError
        return raw

    return read


def base_url(raw: object) -> str:
    """An address to which paths are added."""
    found = str(url("https", "http")(raw))
    if "?" in found or "#" in found or "@" in found:
        raise ValueError
    return found.rstrip("/")


def callback(raw: object) -> str:
    """Where the OpenID provider sends browsers back to: the path is one of the dashboard."""
    found = str(url("https", "http")(raw))
    if not found.endswith(CALLBACK_PATH) or "?" in found or "#" in found:
        raise ValueError
    return found


_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"
_LOGIN = r"(?:[^\s/@,?#]*@)?"
_FOLDER = r"(?:/[A-Za-z0-9._-]+)*/?"
_COORDINATOR = re.compile(
    r"postgres|advisory"
    rf"|etcds?://{_LOGIN}{_HOST}(?:,{_HOST})*{_FOLDER}"
    rf"|zookeeper://{_HOST}(?:,{_HOST})*{_FOLDER}"
    rf"|rediss?://{_LOGIN}{_HOST}(?:/\d{{0,5}})?"
)


def coordinator(raw: object) -> str:
    if not isinstance(raw, str) or not _COORDINATOR.fullmatch(raw):
        raise ValueError
    hosts = urlsplit(raw).netloc.rpartition("@")[2].split(",")
    if any(int(port) > 65535 for port in re.findall(r":(\d+)$", "\n".join(hosts), re.MULTILINE)):
        raise ValueError
    return raw


_KAFKA_OPTION = r"(?:sasl=(?:PLAIN|SCRAM-SHA-256|SCRAM-SHA-512)|partitions=[1-9]\d{0,3}|replication=[1-9])"
_QUEUE = re.compile(
    r"postgres|redis|nats|rabbitmq|kafka|sqs"
    rf"|rediss?://{_LOGIN}{_HOST}(?:/\d{{0,5}})?"
    rf"|natss?://{_LOGIN}{_HOST}(?:,{_HOST})*/?"
    rf"|amqps?://{_LOGIN}{_HOST}(?:/[^/\s?#]*)?"
    rf"|kafkas?://{_LOGIN}{_HOST}(?:,{_HOST})*/?(?:\?{_KAFKA_OPTION}(?:&{_KAFKA_OPTION})*)?"
    rf"|sqs://(?:{_LOGIN}{_HOST})?(?:/[^\s?#]*)?(?:\?[^\s#]*)?"
)


def queue(raw: object) -> str:
    if not isinstance(raw, str) or not _QUEUE.fullmatch(raw):
        raise ValueError
    if any(int(port) > 65535 for port in re.findall(r":(\d+)(?=[,/?]|$)", urlsplit(raw).netloc.rpartition("@")[2])):
        raise ValueError
    return raw


def whole(lowest: int, highest: int) -> Reader:
    def read(raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, str | int):
            raise ValueError
        number = int(raw)
        if not lowest <= number <= highest:
            raise ValueError
        return number

    return read


def seconds(lowest: float, highest: float) -> Reader:
    def read(raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, str | int | float):
            raise ValueError
        number = float(raw)
        if not math.isfinite(number) or not lowest <= number <= highest:
            raise ValueError
        return number

    return read


def zero_or_seconds(lowest: float, highest: float) -> Reader:
    read = seconds(0, highest)

    def read_zero_or(raw: object) -> float:
        number = float(str(read(raw)))
        if 0 < number < lowest:
            raise ValueError
        return number

    return read_zero_or


def switch(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    words = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }
    if not isinstance(raw, str) or raw.lower() not in words:
        raise ValueError
    return words[raw.lower()]


def or_auto(read: Reader) -> Reader:
    return lambda raw: None if raw == "auto" else read(raw)


def choice(*words: str) -> Reader:
    def read(raw: object) -> str:
        if not isinstance(raw, str) or raw.lower() not in words:
            raise ValueError
        return raw.lower()

    return read


def names(raw: object) -> tuple[str, ...]:
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple) or not parts:
        raise ValueError
    names = tuple(dict.fromkeys(part.strip() if isinstance(part, str) else "" for part in parts))
    if not all(re.fullmatch(r"[^\s,\x00]{1,128}", name) for name in names):
        raise ValueError
    return names


def tenants(raw: object) -> tuple[str, ...]:
    """An empty list in a file means none."""
    found = () if raw == [] else names(raw)
    if not all(re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", name) for name in found):
        raise ValueError
    return found


def celery_apps(raw: object) -> tuple[str, ...]:
    """Each with its tenant; without one, it is open to the default tenant. An empty list in a file means none."""
    found = [each if "@" in each else f"{each}@default" for each in (() if raw == [] else names(raw))]
    if not all(
        re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*@[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", one) for one in found
    ):
        raise ValueError
    return tuple(found)


def patterns(raw: object) -> tuple[str, ...]:
    """Names of environment variables, with * for any characters. An empty list in a file means none."""
    found = () if raw == [] else names(raw)
    if not all(re.fullmatch(r"[A-Za-z_*][A-Za-z0-9_*]*", name) for name in found):
        raise ValueError
    return found


def secret_keys(raw: object) -> str:
    if not isinstance(raw, str) or not read_master_keys(raw):
        raise ValueError
    return raw


def networks(raw: object) -> tuple[str, ...]:
    """Refuses a network with bits of a host, such as 10.0.0.1/8: it is unclear which of the two is meant."""
    return tuple(str(ip_network(name)) for name in names(raw))


def path(raw: object) -> Path:
    if isinstance(raw, Path):
        return raw
    if not isinstance(raw, str) or "\0" in raw:
        raise ValueError
    try:
        return Path(raw).expanduser()
    except RuntimeError:
        raise ValueError from None


def archive(raw: object) -> str:
    if not isinstance(raw, str) or "\0" in raw:
        raise ValueError
    scheme = urlsplit(raw).scheme
    if scheme not in ARCHIVES if scheme else not Path(raw).expanduser().is_absolute():
        raise ValueError
    return raw
