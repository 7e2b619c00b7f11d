"""Which addresses a worker may call, and which spellings of a URL are accepted at all.

A check at registration cannot be enough: a name may answer with another address a second later. So the policy
is asked with the address that is about to be connected to, when the socket is made
(`AddressPolicy.open_socket`), for names and literal addresses alike. `check_url` only refuses early what no
worker could ever call, and every spelling that two parsers might read differently.
"""

from __future__ import annotations

import errno
import functools
import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, NamedTuple

from yarl import URL

from detent.targets.errors import TargetError

Address = IPv4Address | IPv6Address
AddrInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]


class Block(NamedTuple):
    network: IPv4Network | IPv6Network
    kind: str
    private: bool  # may be allowed by the operator; everything else is refused always


def _always(kind: str, *networks: str) -> list[Block]:
    return [Block(_network(text), kind, private=False) for text in networks]


def _private(kind: str, *networks: str) -> list[Block]:
    return [Block(_network(text), kind, private=True) for text in networks]


def _network(text: str) -> IPv4Network | IPv6Network:
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
# Only what these wrap decides. ("Compatible" is not among them: it holds the loopback address.)
_TRANSPARENT = [_MAPPED, _NAT64, _SIX_TO_FOUR, _TEREDO]


class AddressRefusedError(OSError):
    """Raised where the socket would be made. An OSError, because that is what connectors expect there."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EACCES, sentence)
        self.sentence = sentence


class AddressPolicy:
    """The rule of one worker. Metadata, link-local and meaningless addresses stay refused in any case."""

    def __init__(self, allow_private: bool = False) -> None:
        self.allow_private = allow_private

    def check(self, address: str) -> str | None:
        """The sentence why this IP address is not called, or None."""
        try:
            outer = ip_address(address.partition("%")[0])
        except ValueError:
            return f"{address!r} is not an IP address, so it cannot be checked and is not called."
        for inner in [outer, *_wrapped(outer)]:
            found = _find(inner)
            if found is None or (found.private and self.allow_private):
                continue
            name = str(outer) if inner == outer else f"{outer} stands for {inner}, which"
            return f"{name} is {found.kind}{_remedy(found)}."
        return None

    def open_socket(self, info: AddrInfo) -> socket.socket:
        """Make the socket for exactly this address, or refuse: the last step before the connection."""
        family, kind, protocol, _, address = info
        sentence = self.check(str(address[0]))
        if sentence is not None:
            raise AddressRefusedError(sentence)
        return socket.socket(family, kind, protocol)


def _remedy(block: Block) -> str:
    if block.private:
        return "; private targets are refused unless you allow them with --allow-private-targets"
    return ", which no target may have"


def _find(address: Address) -> Block | None:
    if isinstance(address, IPv4Address):
        return next((block for block in _BLOCKS_4 if address in block.network), None)
    if any(address in network for network in _TRANSPARENT):
        return None
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


_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<slashes>//)?(?P<authority>[^/?#]*)")
_PLAIN_URL = re.compile(r"(?P<origin>https?://[^/?#]+)([/?][!$-;=?-Z_a-z~]*)?")
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?", re.DOTALL)
_HOST_NAME = re.compile(r"(?=.{1,254}\Z)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_POINTER = "/target/url"
_CHARACTER_NAMES = {
    "\\": "a backslash",
    " ": "a space",
    "\t": "a tab",
    "\n": "a line break",
    "\r": "a line break",
    "\0": "a NUL character",
}


def check_url(url: str) -> None:
    """Refuse a URL no worker will call, at registration."""
    plain = _PLAIN_URL.fullmatch(url)
    if plain is None:
        parse_url(url)
    else:
        _check_origin(plain["origin"])  # behind it stands nothing that could be refused


@functools.lru_cache(maxsize=4096)
def _check_origin(origin: str) -> None:
    parse_url(origin)


def parse_url(url: str) -> URL:
    """The parsed URL, whose host is the one that is connected to; or TargetError."""
    for character in url:
        if character <= " " or character == "\\" or "\x7f" <= character <= "\xa0" or character.isspace():
            raise _refuse(
                f"The URL contains {_character_name(character)}; remove it or percent-encode it "
                f"(as {_percent(character)})."
            )
    parts = _URL.match(url)
    if parts is None:
        raise _refuse("The URL has no scheme; write it out, for example https://example.com/path.")
    if parts["scheme"].lower() not in ("http", "https"):
        raise _refuse(f"The URL's scheme is {parts['scheme']!r}; only http and https can be called.")
    if parts["slashes"] is None or not parts["authority"]:
        raise _refuse("The URL has no host; write it out, for example https://example.com/path.")
    host = _check_authority(parts["authority"])
    try:
        parsed = URL(url)
    except ValueError as error:
        raise _refuse(f"The URL cannot be read: {str(error).rstrip('.')}.") from None
    _check_host(host, parsed.raw_host or "")
    return parsed


def _check_authority(authority: str) -> str:
    if "@" in authority:
        raise _refuse("The URL contains a user name or password; send credentials in a header instead.")
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None or (authority.count(":") > 1 and not authority.startswith("[")):
        raise _refuse(f"The host {authority!r} cannot be read; an IPv6 address must stand in brackets.")
    port = parts["port"]
    if port is not None and not (re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
        raise _refuse(f"The URL's port is {port!r}; it must be a number from 1 to 65535.")
    if not parts["host"]:
        raise _refuse("The URL has no host; write it out, for example https://example.com/path.")
    return parts["host"]


def _check_host(written: str, host: str) -> None:
    """`written` is what stands in the URL, `host` what its normal form is and what will be connected to."""
    if written.startswith("["):
        _check_literal(written, host, IPv6Address)
    elif not _HOST_NAME.fullmatch(host):
        raise _refuse(
            f"The host {written!r} is not a valid host name; use letters, digits, hyphens and full stops, "
            "at most 63 characters between two full stops."
        )
    elif _NUMERIC_LABEL.fullmatch(host.rstrip(".").rpartition(".")[2]):
        _check_literal(written, written, IPv4Address)


def _check_literal(written: str, host: str, kind: type[IPv4Address] | type[IPv6Address]) -> None:
    try:
        if "%" in host or not host.isascii():
            raise ValueError
        address = kind(host)
    except ValueError:
        form = "1.2.3.4" if kind is IPv4Address else "[2001:db8::1]"
        raise _refuse(
            f"The host {written!r} is neither a name nor a plain IP address; write addresses like {form}."
        ) from None
    sentence = AddressPolicy(allow_private=True).check(str(address))
    if sentence is not None:
        raise _refuse(f"The URL cannot be called: {sentence}")


def _refuse(sentence: str) -> TargetError:
    return TargetError(_POINTER, sentence)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _character_name(character: str) -> str:
    return _CHARACTER_NAMES.get(character, f"the character U+{ord(character):04X}")
