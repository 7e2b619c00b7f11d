"""Which IP addresses a target may have, and the sentence that refuses the others. No I/O.

The first block that holds an address names it. IPv6 addresses that stand for an IPv4 address are unwrapped first.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Block(NamedTuple):
    network: Network
    kind: str
    private: bool  # an allow list may open it; everything else is refused always


def _always(kind: str, *networks: str) -> list[Block]:
    return [Block(_network(text), kind, private=False) for text in networks]


def _private(kind: str, *networks: str) -> list[Block]:
    return [Block(_network(text), kind, private=True) for text in networks]


def _network(text: str) -> Network:
    return IPv6Network(text) if ":" in text else IPv4Network(text)


# The order matters: the first block that holds an address names it, so the single addresses come first.
_BLOCKS_4 = [
    *_always(
        "a cloud metadata address",
        "169.254.169.254/32",
        "169.254.170.2/32",
        "169.254.170.23/32",
        "100.100.100.200/32",
        "192.0.0.192/32",
        "168.63.129.16/32",
    ),
    *_always("an unspecified address", "0.0.0.0/8"),
    *_private("a loopback address", "127.0.0.0/8"),
    *_private("a private address", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
    *_private("a carrier-grade NAT address", "100.64.0.0/10"),
    *_private("a benchmarking address", "198.18.0.0/15"),
    *_always("a link-local address", "169.254.0.0/16"),
    *_always("a protocol assignment address", "192.0.0.0/24"),
    *_always("a documentation address", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),
    *_always("a 6to4 relay address", "192.88.99.0/24"),
    *_always("a multicast address", "224.0.0.0/4"),
    *_always("a broadcast address", "255.255.255.255/32"),
    *_always("a reserved address", "240.0.0.0/4"),
]

_BLOCKS_6 = [
    *_always("a cloud metadata address", "fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128"),
    *_always("an unspecified address", "::/128"),
    *_private("a loopback address", "::1/128"),
    *_private("a private address", "fc00::/7"),
    *_private("a site-local address", "fec0::/10"),
    *_private("a local NAT64 address", "64:ff9b:1::/48"),
    *_private("a benchmarking address", "2001:2::/48"),
    *_always("a link-local address", "fe80::/10"),
    *_always("a multicast address", "ff00::/8"),
    *_always("a documentation address", "2001:db8::/32", "3fff::/20"),
    *_always("a protocol assignment address", "2001::/23"),
]

_GLOBAL_6 = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
# For these, only the wrapped address decides. ("Compatible" is not among them: it holds the loopback address.)
_TRANSPARENT = [_MAPPED, _NAT64, _SIX_TO_FOUR, _TEREDO]


class AddressFault(NamedTuple):
    """Why an address is refused. `private`: an allow list may open it, as `inner`, which is the address itself or the
    one that it stands for."""

    reason: str
    private: bool
    inner: Address | None = None


def address_fault(address: str, is_allowed: Callable[[Address], bool], host: str = "") -> AddressFault | None:
    """Why this IP address is refused, or None; `is_allowed` decides about private ones. Metadata, link-local and
    reserved addresses are always refused. `host` is the name that has the address, if there is one."""
    outer = read_address(address)
    if outer is None:
        return AddressFault(f"{address!r} is not an IP address, so it cannot be checked and is not called", False)
    faults = []
    for inner in faces(outer):
        found = _find(inner)
        if found is None or (found.private and is_allowed(inner)):
            continue
        name = f"{outer}, the address of {host}," if host else str(outer)
        name = name if inner == outer else f"{name} stands for {inner}, which"
        reason = f"{name} is {found.kind}{'' if found.private else ', which no target may have'}"
        faults.append(AddressFault(reason, found.private, inner))
    # What no list can open is named first: advice to allow it would lead nowhere.
    return min(faults, key=lambda fault: fault.private, default=None)


def read_address(address: str) -> Address | None:
    try:
        return ip_address(address.partition("%")[0])
    except ValueError:
        return None


def faces(address: Address) -> list[Address]:
    """The addresses that decide about this one: itself, unless it only wraps others, and those that it wraps."""
    wrapped: list[Address] = [*_wrapped(address)]
    return wrapped if wraps_others(address) else [address, *wrapped]


def wraps_others(address: Address) -> bool:
    """Whether only the IPv4 addresses decide for which this one stands."""
    return isinstance(address, IPv6Address) and any(address in network for network in _TRANSPARENT)


def is_private(address: Address) -> bool:
    """Whether an allow list may open this address, and has to."""
    found = _find(address)
    return found is not None and found.private


def never_called(network: Network) -> str | None:
    """The kind of addresses in this network, if all of them are always refused."""
    blocks = _BLOCKS_4 if isinstance(network, IPv4Network) else _BLOCKS_6
    for block in blocks:
        if not block.private and network.version == block.network.version and _within(network, block.network):
            return block.kind
    return None


def _within(inner: Network, outer: Network) -> bool:
    return inner.network_address in outer and inner.prefixlen >= outer.prefixlen


def _find(address: Address) -> Block | None:
    if isinstance(address, IPv4Address):
        return next((block for block in _BLOCKS_4 if address in block.network), None)
    for block in _BLOCKS_6:
        if address in block.network:
            return block
    if address in _GLOBAL_6 or address in _COMPATIBLE:
        return None
    return Block(IPv6Network("::/0"), "a reserved address", private=False)


def _wrapped(address: Address) -> list[IPv4Address]:
    """Every IPv4 address that this IPv6 address would be translated to on the way."""
    if isinstance(address, IPv4Address):
        return []
    packed = address.packed
    if address in _MAPPED or address in _NAT64:
        return [IPv4Address(packed[12:])]
    if address in _COMPATIBLE:
        return [IPv4Address(packed[12:])] if int(address) > 1 else []
    if address in _SIX_TO_FOUR:
        return [IPv4Address(packed[2:6])]
    if address in _TEREDO:
        return [IPv4Address(packed[4:8]), IPv4Address(bytes(byte ^ 0xFF for byte in packed[12:]))]
    if address in _NAT64_LOCAL:
        return _local_nat64(packed)
    return []


def _local_nat64(packed: bytes) -> list[IPv4Address]:
    """A local prefix has one of four lengths, and byte 8 is always skipped. A first zero means: not this one."""
    layouts = [packed[6:8] + packed[9:11], packed[7:8] + packed[9:12], packed[9:13], packed[12:16]]
    return [IPv4Address(layout) for layout in layouts if layout[0]]
