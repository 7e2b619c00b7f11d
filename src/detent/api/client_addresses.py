"""The address of the client behind a request.

It is the peer of the connection. Only a peer that is a trusted proxy is believed when it names the client in
`X-Forwarded-For` or `Forwarded`: any other client can write anything there. Each proxy appends the address it was
called from, so the client is the last address that is not itself a trusted proxy; the client itself wrote all that
comes before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.requests import Request

Address = IPv4Address | IPv6Address


class ClientAddresses:
    def __init__(self, trusted: Iterable[str] = ()) -> None:
        """`trusted`: the networks of the proxies."""
        self._trusted = [ip_network(network) for network in trusted]

    def of(self, request: Request) -> str:
        peer = request.client.host if request.client else ""
        address = _read(peer)
        if address is None or not self._trusts(address):
            return peer
        chains = (list(_x_forwarded_for(request.headers)), list(_forwarded(request.headers)))
        named = {self._client(chain, address) for chain in chains if chain}
        # A proxy appends to one of the two headers. Where they disagree, the other one is the client's own.
        return str(named.pop()) if len(named) == 1 else peer

    def trusts(self, peer: str) -> bool:
        """Whether this peer is a trusted proxy."""
        address = _read(peer)
        return address is not None and self._trusts(address)

    def _client(self, chain: list[str], peer: Address) -> Address:
        last = peer
        for text in reversed(chain):
            address = _read(text)
            if address is None:
                return last  # not an address: what comes before it cannot be attributed
            last = address
            if not self._trusts(address):
                break
        return last

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def _x_forwarded_for(headers: Headers) -> Iterator[str]:
    for line in headers.getlist("x-forwarded-for"):
        yield from line.split(",")


def _forwarded(headers: Headers) -> Iterator[str]:
    """What `for=` names in each element, "" where there is none. Split at every comma, also inside of quotes: an open
    quote of the client must not swallow what the proxy appended."""
    for line in headers.getlist("forwarded"):
        for element in line.split(","):
            pairs = (pair.partition("=") for pair in element.split(";"))
            yield next((value.strip().strip('"') for name, _, value in pairs if name.strip().lower() == "for"), "")


def _read(text: str) -> Address | None:
    """192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1], [2001:db8::1]:80."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
