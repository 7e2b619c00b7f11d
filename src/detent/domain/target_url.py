"""Which URLs a target may have. No I/O.

Refused at registration: URLs that no worker could call, and every spelling that two parsers might read differently. The
address behind a name is checked when the socket is created (`targets/guard.py`), because a name may resolve to another
address a second later.
"""

from __future__ import annotations

import functools
import re
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from yarl import URL

from detent.domain.addresses import address_fault
from detent.domain.topics import server_of

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


class UrlForm(NamedTuple):
    """What the URLs of a kind of target have in common. `only` and `userinfo` end the sentences about another scheme
    and about credentials in the URL."""

    schemes: frozenset[str]
    example: str
    only: str
    userinfo: str


HTTP_FORM = UrlForm(
    frozenset({"http", "https"}),
    "https://example.com/path",
    "only http and https can be called",
    "send credentials in a header instead",
)


class TargetError(ValueError):
    """A target that cannot be called as written; `pointer` is the JSON pointer of the wrong part of the job."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(message)
        self.pointer = pointer
        self.message = message


def check_url(url: str) -> None:
    """Refuse a URL no worker will call, at registration."""
    plain = _PLAIN_URL.fullmatch(url)
    if plain is None:
        parse_url(url)
    else:
        _check_origin(plain["origin"])  # the rest of the URL holds nothing to refuse


@functools.lru_cache(maxsize=4096)
def _check_origin(origin: str) -> None:
    parse_url(origin)


def parse_url(url: str, form: UrlForm = HTTP_FORM) -> URL:
    """The parsed URL, with the host in the form that is used to connect; raises TargetError."""
    for character in url:
        if character <= " " or character == "\\" or "\x7f" <= character <= "\xa0" or character.isspace():
            raise _refuse(
                f"The URL contains {_character_name(character)}; remove it or percent-encode it "
                f"(as {_percent(character)})."
            )
    parts = _URL.match(url)
    if parts is None:
        raise _refuse(f"The URL has no scheme; write it out, for example {form.example}.")
    if parts["scheme"].lower() not in form.schemes:
        raise _refuse(f"The URL's scheme is {parts['scheme']!r}; {form.only}.")
    if parts["slashes"] is None or not parts["authority"]:
        raise _refuse(f"The URL has no host; write it out, for example {form.example}.")
    host = _check_authority(parts["authority"], form)
    try:
        parsed = URL(url)
    except ValueError as error:
        raise _refuse(f"The URL cannot be read: {str(error).rstrip('.')}.") from None
    _check_host(host, parsed.raw_host or "")
    return parsed


def _check_authority(authority: str, form: UrlForm) -> str:
    if "@" in authority:
        raise _refuse(f"The URL contains a user name or password; {form.userinfo}.")
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None or (authority.count(":") > 1 and not authority.startswith("[")):
        raise _refuse(f"The host {authority!r} cannot be read; an IPv6 address must stand in brackets.")
    port = parts["port"]
    if port is not None and not (re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
        raise _refuse(f"The URL's port is {port!r}; it must be a number from 1 to 65535.")
    if not parts["host"]:
        raise _refuse(f"The URL has no host; write it out, for example {form.example}.")
    return parts["host"]


def _check_host(written: str, host: str) -> None:
    """`written` is the host as in the URL, `host` its normal form, which the worker connects to."""
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
    fault = address_fault(str(address), lambda _: True)  # which private ones are open is the tenant's matter
    if fault is not None:
        raise _refuse(f"The URL cannot be called: {fault.reason}.")


def _refuse(sentence: str) -> TargetError:
    return TargetError(_POINTER, sentence)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _character_name(character: str) -> str:
    return _CHARACTER_NAMES.get(character, f"the character U+{ord(character):04X}")


def calls_host(url: str, host: str, port: int) -> bool:
    """Whether a target with this URL calls this host and port."""
    try:
        parsed = URL(url)
    except ValueError:
        return False
    called, its_port = server_of(parsed)
    return (called, its_port or parsed.port or 0) == (host, port)
