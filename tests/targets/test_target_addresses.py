"""Which addresses are called: the deny list, with and without private ones."""

from __future__ import annotations

import socket

import pytest

from detent.domain.target_access import PRIVATE_TOO as OPEN
from detent.domain.target_access import PUBLIC_ONLY as STRICT
from detent.domain.target_access import TargetRules
from detent.targets.guard import AddressGuard, AddressRefusedError

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001::1",
    "::ffff:8.8.8.8",
    "::8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
    "2001:0:808:808:0:0:f7f7:f7f7",
]

PRIVATE = [
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("10.0.0.1", "private"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.168.1.1", "private"),
    ("100.64.0.1", "carrier-grade NAT"),
    ("100.127.255.255", "carrier-grade NAT"),
    ("198.18.0.1", "benchmarking"),
    ("198.19.255.255", "benchmarking"),
    ("::1", "loopback"),
    ("fc00::1", "private"),
    ("fd12:3456::1", "private"),
    ("fec0::1", "site-local"),
    ("feff::1", "site-local"),
    ("2001:2::1", "benchmarking"),
    ("64:ff9b:1::808:808", "local NAT64"),
    ("::ffff:127.0.0.1", "loopback"),
    ("::ffff:10.1.2.3", "private"),
    ("::127.0.0.1", "loopback"),
    ("::10.0.0.1", "private"),
    ("64:ff9b::7f00:1", "loopback"),
    ("64:ff9b::a00:1", "private"),
    ("2002:7f00:1::", "loopback"),
    ("2002:c0a8:101::1", "private"),
    ("2001:0:808:808:0:0:80ff:fffe", "loopback"),  # the client of a Teredo address, every bit turned round
    ("2001:0:a00:1:0:0:f7f7:f7f7", "private"),  # its server
]

NEVER = [
    ("0.0.0.0", "unspecified"),
    ("0.1.2.3", "unspecified"),
    ("169.254.169.254", "cloud metadata"),
    ("169.254.170.2", "cloud metadata"),
    ("100.100.100.200", "cloud metadata"),
    ("192.0.0.192", "cloud metadata"),
    ("168.63.129.16", "cloud metadata"),
    ("169.254.0.1", "link-local"),
    ("192.0.0.1", "protocol assignment"),
    ("192.0.2.1", "documentation"),
    ("198.51.100.7", "documentation"),
    ("203.0.113.9", "documentation"),
    ("192.88.99.1", "6to4 relay"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.250", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "broadcast"),
    ("::", "unspecified"),
    ("fd00:ec2::254", "cloud metadata"),
    ("fd20:ce::254", "cloud metadata"),
    ("fd00:42::42", "cloud metadata"),
    ("fe80::1", "link-local"),
    ("fe80::1%eth0", "link-local"),
    ("febf::1", "link-local"),
    ("ff02::1", "multicast"),
    ("ff0e::1", "multicast"),
    ("2001:db8::1", "documentation"),
    ("3fff::1", "documentation"),
    ("2001:10::1", "protocol assignment"),
    ("100::1", "reserved"),
    ("4000::1", "reserved"),
    ("64:ff9b:2::1", "reserved"),
    ("::ffff:169.254.169.254", "cloud metadata"),
    ("::ffff:0.0.0.0", "unspecified"),
    ("::169.254.169.254", "cloud metadata"),
    ("64:ff9b::a9fe:a9fe", "cloud metadata"),
    ("64:ff9b::e000:1", "multicast"),
    ("64:ff9b:1::a9fe:a9fe", "cloud metadata"),
    ("64:ff9b:1:a9fe:a9:fe00::", "cloud metadata"),  # a local prefix of 48 bits
    ("64:ff9b:1:a9:fe:a9fe::", "cloud metadata"),  # of 56
    ("64:ff9b:1:0:a9:fea9:fe00:0", "cloud metadata"),  # of 64
    ("2002:a9fe:a9fe::", "cloud metadata"),
    ("2001:0:808:808:0:0:5601:5601", "cloud metadata"),
    ("2001:0:a9fe:a9fe:0:0:f7f7:f7f7", "cloud metadata"),
    ("not-an-address", "not an IP address"),
    ("127.1", "not an IP address"),
    ("0177.0.0.1", "not an IP address"),
    ("2130706433", "not an IP address"),
    ("", "not an IP address"),
]


def check(rules: TargetRules, address: str) -> str | None:
    fault = rules.fault(address, 80)
    return None if fault is None else fault.sentence("default")


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_called(address: str) -> None:
    assert check(STRICT, address) is None
    assert check(OPEN, address) is None


@pytest.mark.parametrize(("address", "kind"), PRIVATE)
def test_a_private_address_is_refused_unless_allowed(address: str, kind: str) -> None:
    sentence = check(STRICT, address)
    assert sentence is not None
    assert f"is a {kind} address" in sentence
    assert "detent tenant allow default " in sentence
    assert check(OPEN, address) is None


@pytest.mark.parametrize(("address", "kind"), NEVER)
def test_some_addresses_are_never_called(address: str, kind: str) -> None:
    for policy in (STRICT, OPEN):
        sentence = check(policy, address)
        assert sentence is not None
        assert kind in sentence
        assert "detent tenant allow" not in sentence


def test_the_sentence_names_the_address_inside_another() -> None:
    assert check(STRICT, "64:ff9b::a9fe:a9fe") == (
        "64:ff9b::a9fe:a9fe stands for 169.254.169.254, which is a cloud metadata address, which no target may have."
    )


def test_no_socket_is_made_for_a_refused_address() -> None:
    with pytest.raises(AddressRefusedError, match=r"10\.0\.0\.1 is a private address"):
        AddressGuard(STRICT).open_socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("10.0.0.1", 80)))


def test_a_socket_is_made_for_a_public_address() -> None:
    info = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("8.8.8.8", 80))
    with AddressGuard(STRICT).open_socket(info) as made:
        assert made.family == socket.AF_INET
