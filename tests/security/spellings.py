"""79 ways to write an address that must not be called, and the addresses that a name may turn out to have.

No URL with one of ALWAYS is called, whether a tenant or an operator configured it. Those in PRIVATE lead to this
machine or to a private network: refused to tenants, and allowed where the operator of a node wrote them into its
settings.
"""

from __future__ import annotations

from typing import NamedTuple


class Spelling(NamedTuple):
    """A host as it is written in a URL; `resolves` are the addresses of a name."""

    host: str
    resolves: tuple[str, ...] = ()


LITERALS_ALWAYS = (
    "169.254.169.254",
    "169.254.169.254.",
    "2852039166",
    "0xa9fea9fe",
    "0xA9FEA9FE",
    "025177524776",
    "0251.0376.0251.0376",
    "0251.254.169.254",
    "0xa9.0xfe.0xa9.0xfe",
    "169.254.43518",
    "169.16689662",
    "169.254.169.0xfe",
    "169.254.169.254%00",
    "169。254。169。254",
    "①⑥⑨.②⑤④.①⑥⑨.②⑤④",
    "\uff11\uff16\uff19.254.169.254",
    "١٦٩.254.169.254",
    "user@169.254.169.254",
    "example.com@169.254.169.254",
    "example.com:80@169.254.169.254",
    "169.254.169.254#@example.com",
    "169.254.169.254\\@example.com",
    "example.com\\@169.254.169.254",
    "169.254.169.254 ",
    "169.254.169.254\t",
    "169.254\n.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.0.1",
    "0.0.0.0",
    "0",
    "0x0",
    "000",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "[fd00:ec2::254]",
    "[FD00:EC2:0:0:0:0:0:254]",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[::]",
    "[ff02::1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[0:0:0:0:0:ffff:a9fe:a9fe]",
    "[::169.254.169.254]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b:1::169.254.169.254]",
    "[2002:a9fe:a9fe::]",
    "[2001:0:a9fe:a9fe::f7f7:f7f7]",
    "[2001:0:808:808::5601:5601]",
    "[::ffff:0.0.0.0]",
    "::ffff:169.254.169.254",
    # Odd spellings of this machine: no plain address, so the operator cannot mean them either.
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "127.0.0.1.",
    "127.00.00.01",
    "[::1%25lo]",
    "\uff11\uff12\uff17.0.0.1",
)

LITERALS_PRIVATE = (
    "127.0.0.1",
    "127.255.255.254",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]",
    "10.0.0.1",
    "[fd12:3456::1]",
)

ALWAYS = (
    *(Spelling(host) for host in LITERALS_ALWAYS),
    Spelling("metadata.example", ("169.254.169.254",)),
    Spelling("metadata.example.", ("fd00:ec2::254", "fe80::1")),
    Spelling("nowhere.example", ("0.0.0.0", "::")),
)
PRIVATE = (
    *(Spelling(host) for host in LITERALS_PRIVATE),
    Spelling("inside.example", ("127.0.0.1",)),
    Spelling("Inside.Example.", ("::1", "10.0.0.1")),
    Spelling("mapped.example", ("::ffff:127.0.0.1",)),
)
SPELLINGS = ALWAYS + PRIVATE
