"""Which host a target calls, without calling it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from detent.domain.celery_rules import read_server
from detent.domain.job import CeleryTarget, HttpTarget, Target, TopicTarget
from detent.domain.target_url import TargetError, parse_url
from detent.domain.template import TemplateError, is_template
from detent.domain.template_places import url_template
from detent.domain.topic_rules import parse_topic_url
from detent.domain.topics import server_of


class HostKey(NamedTuple):
    """A host as circuits and limits know it."""

    tenant: int
    host: str
    port: int

    @property
    def peer(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def host_of(target: Target, tenant: int) -> HostKey | None:
    """None: it calls no host, or its URL is refused."""
    if type(target) is HttpTarget:
        host = http_host(target.url)
    elif type(target) is TopicTarget:
        host = topic_host(target.url)
    elif type(target) is CeleryTarget and target.broker_url is not None:
        host = broker_host(target.broker_url)
    else:
        return None
    return None if host is None else HostKey(tenant, *host)


@lru_cache(maxsize=4096)
def http_host(url: str) -> tuple[str, int] | None:
    """A template cannot change the host."""
    try:
        parsed = url_template(url).origin if is_template(url) else parse_url(url)
    except (TargetError, TemplateError):
        return None
    return parsed.raw_host or "", parsed.port or 0


@lru_cache(maxsize=4096)
def topic_host(url: str) -> tuple[str, int] | None:
    try:
        parsed = parse_topic_url(url)
    except TargetError:
        return None
    return server_of(parsed)


@lru_cache(maxsize=4096)
def broker_host(url: str) -> tuple[str, int] | None:
    """Of a broker of Celery."""
    try:
        server = read_server(url, "broker_url")
    except TargetError:
        return None
    return server.host, server.port
