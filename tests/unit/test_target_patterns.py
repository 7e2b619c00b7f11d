"""Patterns of an allow list: how they are written, and what they cover."""

from __future__ import annotations

import pytest

from detent.domain.target_access import TargetRules
from detent.domain.target_patterns import PatternError, read_pattern

WRITTEN = {
    "private": "private",
    "Private:5432": "private:5432",
    "10.2.3.4": "10.2.3.4",
    "10.2.3.4/32": "10.2.3.4",
    "10.2.3.4:8443": "10.2.3.4:8443",
    "10.2.0.0/16": "10.2.0.0/16",
    " 10.2.0.0/16:8443 ": "10.2.0.0/16:8443",
    "fd00::/8": "fd00::/8",
    "FD00:0::1": "fd00::1",
    "[fd00::]/8": "fd00::/8",
    "[fd00::]/8:443": "[fd00::]/8:443",
    "[fd00::/8]:443": "[fd00::]/8:443",
    "[fd00::1]:443": "[fd00::1]:443",
    "API.internal.": "api.internal",
    "api.internal:8080": "api.internal:8080",
    "*.svc.Internal": "*.svc.internal",
    "*.svc.internal:8080": "*.svc.internal:8080",
    "localhost:3000": "localhost:3000",
}

NOT_PATTERNS = {
    "": "is not an address, a network or a name",
    "*": "is not an address, a network or a name",
    "*.": "is not an address, a network or a name",
    "a.*.internal": "is not an address, a network or a name",
    "http://api.internal/": "is not an address, a network or a name",
    "127.1": "is not an address, a network or a name",
    "0x7f000001": "is not an address, a network or a name",
    "10.2.0.0/33": "is not an address, a network or a name",
    "bücher.example": "is not an address, a network or a name",
    "fe80::1%eth0": "is not an address, a network or a name",
    "api.internal:": "The port of 'api.internal:' is ''",
    "api.internal:0": "give a number from 1 to 65535",
    "api.internal:99999": "give a number from 1 to 65535",
    "10.2.0.0/16:http": "give a number from 1 to 65535",
    "10.2.3.4/16": "write 10.2.0.0/16 for the network, or 10.2.3.4",
    "169.254.169.254": "is a cloud metadata address: such addresses can never be called",
    "169.254.0.0/16:80": "is a link-local address: such addresses can never be called",
    "[fe80::]/10": "is a link-local address: such addresses can never be called",
    "::ffff:10.0.0.1": "write those instead",
}


@pytest.mark.parametrize(("text", "normal"), WRITTEN.items())
def test_a_pattern_has_one_normal_form(text: str, normal: str) -> None:
    assert read_pattern(text).text == normal
    assert read_pattern(normal) == read_pattern(text)


@pytest.mark.parametrize(("text", "reason"), NOT_PATTERNS.items())
def test_what_is_no_pattern_is_refused_in_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(PatternError) as refused:
        read_pattern(text)
    assert reason in str(refused.value)
    assert str(refused.value).endswith(".")


def rules(*patterns: str) -> TargetRules:
    return TargetRules([read_pattern(pattern) for pattern in patterns])


@pytest.mark.parametrize(
    ("pattern", "address", "port", "host"),
    [
        ("private", "10.2.3.4", 80, ""),
        ("private", "::1", 80, "localhost"),
        ("private", "8.8.8.8", 80, ""),
        ("10.2.0.0/16", "10.2.255.1", 80, ""),
        ("10.2.0.0/16:8443", "10.2.3.4", 8443, "anything.example"),
        ("10.2.0.0/16", "::ffff:10.2.3.4", 80, ""),
        ("10.2.0.0/16", "64:ff9b::a02:304", 80, ""),
        ("[fd00::]/8:443", "fd12::1", 443, ""),
        ("api.internal", "10.9.9.9", 80, "API.internal."),
        ("*.svc.internal:8080", "192.168.0.9", 8080, "a.b.svc.internal"),
        ("10.2.3.4:5432", "10.2.3.4", 5432, ""),
        ("db.example.com:5432", "93.184.216.34", 5432, "db.example.com"),
        ("0.0.0.0/0:6379", "93.184.216.34", 6379, ""),
    ],
)
def test_what_a_pattern_covers_is_called(pattern: str, address: str, port: int, host: str) -> None:
    assert rules(pattern).fault(address, port, host) is None


@pytest.mark.parametrize(
    ("pattern", "address", "port", "host"),
    [
        ("private", "169.254.169.254", 80, ""),
        ("private", "10.2.3.4", 5432, ""),
        ("private", "93.184.216.34", 5432, ""),
        ("private:5432", "93.184.216.34", 5432, ""),
        ("10.2.0.0/16", "10.3.0.1", 80, ""),
        ("10.2.0.0/16", "10.2.3.4", 6379, ""),
        ("10.2.0.0/16:8443", "10.2.3.4", 8444, ""),
        ("api.internal", "10.9.9.9", 80, ""),
        ("api.internal", "10.9.9.9", 80, "xapi.internal"),
        ("api.internal", "169.254.169.254", 80, "api.internal"),
        ("*.svc.internal", "10.9.9.9", 80, "svc.internal"),
        ("*.svc.internal", "10.9.9.9", 80, "evilsvc.internal"),
        ("*.svc.internal", "10.9.9.9", 80, "svc.internal.example"),
        ("*.svc.internal", "10.9.9.9", 5432, "db.svc.internal"),
        ("0.0.0.0/0", "0.0.0.0", 80, ""),
        ("::/0", "10.0.0.1", 80, ""),
    ],
)
def test_what_no_pattern_covers_is_refused(pattern: str, address: str, port: int, host: str) -> None:
    assert rules(pattern).fault(address, port, host) is not None


@pytest.mark.parametrize(
    ("address", "port", "host", "sentence"),
    [
        (
            *("10.2.3.4", 8443, "10.2.3.4"),
            "10.2.3.4 is a private address: allow it with `detent tenant allow shop 10.2.3.4:8443`.",
        ),
        (
            *("fd00::1", 80, "fd00::1"),
            "fd00::1 is a private address: allow it with `detent tenant allow shop [fd00::1]:80`.",
        ),
        (
            *("10.2.3.4", 8080, "api.internal"),
            "10.2.3.4, the address of api.internal, is a private address: allow it with "
            "`detent tenant allow shop api.internal:8080`.",
        ),
        (
            *("8.8.8.8", 5432, "db.example.com"),
            "Port 5432 is one of databases, brokers and other infrastructure: allow it with "
            "`detent tenant allow shop db.example.com:5432`.",
        ),
    ],
)
def test_a_refusal_names_the_command_that_opens_it(address: str, port: int, host: str, sentence: str) -> None:
    fault = TargetRules().fault(address, port, host)
    assert fault is not None
    assert fault.sentence("shop") == sentence
    assert fault.pattern is not None
    assert rules(fault.pattern).fault(address, port, host) is None
