"""Which addresses and ports the calls of a tenant may reach, and the sentence that refuses the others. No I/O.

Public addresses are open to every tenant; metadata, link-local and reserved ones to none. Private addresses and the
ports of databases and brokers are open where the tenant's allow list says so. Private addresses are also open to the
default tenant while the cluster has no key: only programs on the machine of a server can create jobs then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from yarl import URL

from detent.domain.addresses import Address, address_fault, faces, read_address
from detent.domain.job import DEFAULT_TENANT, CeleryTarget, HttpTarget, JobSpec, TopicTarget
from detent.domain.target_patterns import GUARDED_PORTS, TargetPattern
from detent.domain.topics import is_own_port, protocol_of, server_of

UNREAD = "the allow list of its tenant could not be read from the database"

RulesKey = tuple[bool | str, ...]


class TargetFault(NamedTuple):
    """Why a target is refused, and the pattern that would allow it, if one can. `retryable`: the allow list could not
    be read, and may allow it."""

    reason: str
    pattern: str | None = None
    retryable: bool = False

    def sentence(self, tenant: str) -> str:
        if self.pattern is None:
            return f"{self.reason}."
        return f"{self.reason}: allow it with `detent tenant allow {tenant} {self.pattern}`."


class AllowLists(NamedTuple):
    """What the database says about all tenants: their allow lists, and whether the cluster ever had a key."""

    keyed: bool
    patterns: Mapping[int, Sequence[str]]


class TargetRules:
    """The rules for one tenant's calls. Two with the same `key` allow the same."""

    def __init__(
        self,
        patterns: Iterable[TargetPattern] = (),
        *,
        allow_private: bool = False,
        guard_ports: bool = True,
        unread: bool = False,
    ) -> None:
        self.patterns = tuple(patterns)
        self.allow_private = allow_private
        self.guard_ports = guard_ports
        self.unread = unread
        self.key: RulesKey = (allow_private, guard_ports, unread, *(pattern.text for pattern in self.patterns))

    def fault(self, address: str, port: int, host: str = "") -> TargetFault | None:
        """Why a connection to this IP address and port is refused, or None. `host` is the host of the URL."""
        name = "" if read_address(host) is not None else host.lower().removesuffix(".")
        found = address_fault(address, lambda inner: self._is_open(inner, port, name), name)
        if found is None:
            fault = self._port_fault(address, port, name)
        elif found.private:
            fault = TargetFault(found.reason, _pattern(name, found.inner, port))
        else:
            return TargetFault(found.reason)
        if fault is not None and self.unread:
            return TargetFault(f"{fault.reason}, and {UNREAD}", retryable=True)
        return fault

    def for_protocol(self, protocol: str, port: int) -> TargetRules:
        """The rules for a client of this protocol: at public addresses, its own port is open although it is guarded. At
        private ones, that port still has to be named: who allowed a network for HTTP calls did not open its brokers."""
        if not self.guard_ports or not is_own_port(protocol, port):
            return self
        naming = [pattern for pattern in self.patterns if pattern.port is not None]
        return TargetRules(naming, allow_private=self.allow_private, guard_ports=False, unread=self.unread)

    def _is_open(self, address: Address, port: int, host: str) -> bool:
        return self.allow_private or any(
            pattern.port in (None, port) and pattern.covers(address, host) for pattern in self.patterns
        )

    def _port_fault(self, address: str, port: int, host: str) -> TargetFault | None:
        if port not in GUARDED_PORTS or not self.guard_ports:
            return None
        outer = read_address(address)
        assert outer is not None
        naming = [pattern for pattern in self.patterns if pattern.port == port]
        if all(any(pattern.covers(face, host) for pattern in naming) for face in faces(outer)):
            return None
        return port_fault(port, _pattern(host, outer, port))


PUBLIC_ONLY = TargetRules()
PRIVATE_TOO = TargetRules(allow_private=True)
NOTHING_READ = TargetRules(unread=True)
# For addresses that the operator of a node configured: they may be anywhere but where nothing may be called.
OPERATOR = TargetRules(allow_private=True, guard_ports=False)


def port_fault(port: int, pattern: str) -> TargetFault:
    return TargetFault(f"Port {port} is one of databases, brokers and other infrastructure", pattern)


def _pattern(host: str, address: Address | None, port: int) -> str:
    """What opens this target and nothing else: the name that the URL has, or the address."""
    if host:
        return f"{host}:{port}"
    return f"[{address}]:{port}" if address is not None and address.version == 6 else f"{address}:{port}"


def registration_fault(rules: TargetRules, spec: JobSpec) -> TargetFault | None:
    """What can be known before a call: why the literal address or the port of one of its URLs is refused."""
    if rules.unread:
        return None
    urls = [spec.target.url] if isinstance(spec.target, HttpTarget) else []
    if spec.notify_url is not None:
        urls.append(spec.notify_url)
    faults = [_url_fault(rules, url[: _end_of_origin(url)]) for url in urls]
    faults += [topic_fault(rules, url) for url in broker_urls(spec)]
    if isinstance(spec.target, CeleryTarget) and spec.target.result_backend is not None:
        faults.append(topic_fault(rules, spec.target.result_backend))
    return next((fault for fault in faults if fault is not None), None)


def broker_urls(spec: JobSpec) -> list[str]:
    """The servers that the messages of a job go to."""
    target, dead = spec.target, spec.dead_letter_topic
    found = [] if dead is None else [dead.url]
    if isinstance(target, TopicTarget):
        return [target.url, *found]
    return [target.broker_url, *found] if isinstance(target, CeleryTarget) and target.broker_url is not None else found


@lru_cache(maxsize=1024)
def topic_fault(rules: TargetRules, url: str) -> TargetFault | None:
    """What can be known about the server of a topic or of Celery before a connection."""
    try:
        host, port = server_of(URL(url))
    except ValueError:  # refused for its spelling, elsewhere
        return None
    return _server_fault(rules.for_protocol(protocol_of(url), port), host, port)


def _end_of_origin(url: str) -> int:
    ends = [place for mark in "/?#" if (place := url.find(mark, len("https://"))) >= 0]
    return min(ends, default=len(url))


@lru_cache(maxsize=4096)
def _url_fault(rules: TargetRules, origin: str) -> TargetFault | None:
    try:
        url = URL(origin)
    except ValueError:  # refused for its spelling, elsewhere
        return None
    return _server_fault(rules, url.raw_host or "", url.port or 0)


def _server_fault(rules: TargetRules, host: str, port: int) -> TargetFault | None:
    if read_address(host) is not None:
        return rules.fault(host, port)
    name = host.removesuffix(".")
    if port in GUARDED_PORTS and rules.guard_ports and not _may_be_named(rules, port, name):
        return port_fault(port, f"{name}:{port}")
    return None


def _may_be_named(rules: TargetRules, port: int, host: str) -> bool:
    """A network that names the port may hold the address of this name."""
    named = [pattern for pattern in rules.patterns if pattern.port == port]
    return any(pattern.name is None or pattern.names(host) for pattern in named)


def rules_of(lists: AllowLists, tenant: int, patterns: Sequence[TargetPattern]) -> TargetRules:
    private = tenant == DEFAULT_TENANT and not lists.keyed
    if not patterns:
        return PRIVATE_TOO if private else PUBLIC_ONLY
    return TargetRules(patterns, allow_private=private)
