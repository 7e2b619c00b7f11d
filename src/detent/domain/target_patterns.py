"""Patterns of a tenant's allow list: which private addresses and guarded ports its calls may reach. No I/O.

    private             every private address
    10.2.0.0/16:8443    a network or an address, with or without a port
    [fd00::]/8:443      the same for IPv6; the brackets are needed only with a port
    api.internal:8080   the private addresses that this name resolves to
    *.svc.internal      the private addresses of all names with this ending

A pattern without a port means every port but the guarded ones, which have to be named.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import NamedTuple

from detent.domain.addresses import Address, Network, is_private, never_called, wraps_others

MAX_PATTERNS = 100
PRIVATE = "private"

# Databases, brokers, file and remote access: services that rarely expect HTTP and often trust their network. All are
# below the ephemeral port range.
GUARDED_PORTS = frozenset(
    {
        *(22, 23, 25, 53, 110, 111, 135, 139, 143, 389, 445, 465, 587, 636, 873),
        *(1433, 1434, 1521, 1883, 2049, 2181, 2375, 2376, 2377, 2378, 2379, 2380),
        *(3306, 3389, 4222, 4369, 5432, 5433, 5671, 5672, 5900, 5984, 6379, 6380, 6432),
        *(8500, 9042, 9092, 9200, 9300, 10250, 10255, 11211, 15672, 26257, 27017, 27018, 27019),
    }
)

_PORT = re.compile(r"(?P<rest>.*[^:]):(?P<port>[^:/\]]*)", re.DOTALL)
_BRACKETS = re.compile(r"\[(?P<address>[^\[\]]+)\](?P<prefix>/[0-9]+)?")
_NAME = re.compile(r"(\*\.)?(?=.{1,253}\Z)(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"([0-9]+|0x[0-9a-f]*)")


class PatternError(ValueError):
    """Not a pattern; the message is a sentence that says how to write it."""


class TargetPattern(NamedTuple):
    """One line of an allow list. Without network and name it covers every private address."""

    text: str
    port: int | None = None
    network: Network | None = None
    name: str | None = None

    def covers(self, address: Address, host: str) -> bool:
        """Whether the pattern matches this address of a URL's host."""
        if self.name is not None:
            return self.names(host)
        if self.network is not None:
            return address.version == self.network.version and address in self.network
        return is_private(address)

    def names(self, host: str) -> bool:
        """Whether the pattern matches this host name, whatever its address."""
        if self.name is None:
            return False
        return host.endswith(self.name[1:]) if self.name.startswith("*") else host == self.name


def read_pattern(text: str) -> TargetPattern:
    """The pattern in its normal form, or PatternError."""
    given = text.strip()
    rest, port = _split_port(given)
    if rest.lower() == PRIVATE:
        return TargetPattern(_with_port(PRIVATE, port), port)
    network = _network(rest)
    if network is not None:
        return TargetPattern(_with_port(_shown(network, port), port), port, network)
    name = rest.lower().removesuffix(".")
    if not _NAME.fullmatch(name) or _NUMBER.fullmatch(name.rpartition(".")[2]):
        raise PatternError(
            f"{text!r} is not an address, a network or a name: write it like 10.2.0.0/16:8443, [fd00::]/8, "
            f"api.internal:8080 or *.svc.internal, or {PRIVATE} for all private addresses."
        )
    return TargetPattern(_with_port(name, port), port, None, name)


def _split_port(text: str) -> tuple[str, int | None]:
    """An IPv6 address without brackets has no port."""
    if text.count(":") > 1 and not text.startswith("["):
        return text, None
    found = _PORT.fullmatch(text)
    if found is None or (text.startswith("[") and "]" not in found["rest"]):
        return text, None
    port = found["port"]
    if not (re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
        raise PatternError(f"The port of {text!r} is {port!r}: give a number from 1 to 65535, or leave it out.")
    return found["rest"], int(port)


def _network(text: str) -> Network | None:
    brackets = _BRACKETS.fullmatch(text)
    plain = brackets["address"] + (brackets["prefix"] or "") if brackets else text
    if "%" in plain or not plain.isascii():
        return None
    try:
        network = ip_network(plain, strict=False)
    except ValueError:
        return None
    address, _, prefix = plain.partition("/")
    if prefix and str(network.network_address) != str(ip_network(address).network_address):
        raise PatternError(f"{text!r} is an address inside a network: write {network} for the network, or {address}.")
    _check_kind(text, network)
    return network


def _check_kind(text: str, network: Network) -> None:
    kind = never_called(network)
    if kind is not None:
        raise PatternError(f"{text} is {kind}: such addresses can never be called, so it cannot be allowed.")
    if isinstance(network, IPv6Network) and wraps_others(network.network_address):
        raise PatternError(f"{text} stands for IPv4 addresses: write those instead.")


def _shown(network: Network, port: int | None) -> str:
    whole = network.prefixlen == network.max_prefixlen
    if isinstance(network, IPv4Network) or port is None:
        return str(network.network_address) if whole else str(network)
    return f"[{network.network_address}]" if whole else f"[{network.network_address}]/{network.prefixlen}"


def _with_port(text: str, port: int | None) -> str:
    return text if port is None else f"{text}:{port}"
