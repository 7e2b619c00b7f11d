"""Sends one mail over SMTP: with STARTTLS, with TLS from the start, or without TLS, and with a login.

The socket is opened by the caller, who applies the address rules of the tenant. A mail that was accepted and whose
acknowledgement was lost is sent again under the same Message-ID.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from detent.targets.text import one_line

LONGEST_LINE = 4_096
MOST_LINES = 200
_HELLO = re.compile(r"[A-Za-z0-9.-]{1,200}")


class MailServer(NamedTuple):
    """Where to send, and as whom. `context` is None without TLS."""

    host: str
    port: int
    tls: Literal["starttls", "implicit", "none"]
    context: ssl.SSLContext | None
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"MailServer({self.host!r}, {self.port}, {self.tls!r})"


class Mail(NamedTuple):
    """`content` is the whole message with its headers; lines end with CR LF."""

    sender: str
    to: Sequence[str]
    content: bytes


class MailRefused(Exception):  # noqa: N818 - it says what happened
    """The server did not take the mail; the text is a clause."""


class _Reply(NamedTuple):
    code: int
    lines: list[str]

    @property
    def text(self) -> str:
        return one_line(f"{self.code} {' '.join(self.lines)}".strip())[:300]


class _Lines(Protocol):
    async def receive(self) -> bytes: ...

    async def send(self, data: bytes) -> None: ...


class _PlainLines:
    """Before TLS, on the bare socket: what the server sent too early is seen here, and cannot be taken for an answer
    inside of TLS."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._buffer = bytearray()

    async def receive(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > LONGEST_LINE:
                raise MailRefused("it answered with a line that is too long")
            data = await asyncio.get_running_loop().sock_recv(self._socket, LONGEST_LINE)
            if not data:
                raise MailRefused("it closed the connection")
            self._buffer += data
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    def check_empty(self) -> None:
        if self._buffer:
            raise MailRefused("it sent more than its answer before TLS began")


class _StreamLines:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> bytes:
        try:
            line = await self._reader.readline()
        except ValueError:
            raise MailRefused("it answered with a line that is too long") from None
        if not line.endswith(b"\n"):
            raise MailRefused("it closed the connection")
        return line

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


async def send_mail(server: MailServer, mail: Mail, opened: socket.socket) -> None:
    """Send it through this connected socket, which is closed afterwards; or MailRefused, OSError, ssl.SSLError."""
    try:
        if server.tls == "starttls":
            await _begin_tls(_PlainLines(opened))
        context = None if server.tls == "none" else server.context
        name = server.host.strip("[]") if context is not None else None
        reader, writer = await asyncio.open_connection(
            sock=opened, ssl=context, server_hostname=name, limit=LONGEST_LINE
        )
    except BaseException:
        opened.close()
        raise
    lines = _StreamLines(reader, writer)
    try:
        await _deliver(lines, server, mail, greeted=server.tls == "starttls")
    finally:
        lines.close()


async def _begin_tls(lines: _PlainLines) -> None:
    await _expect(lines, 220)
    features = await _hello(lines)
    if "STARTTLS" not in features:
        raise MailRefused("it does not offer STARTTLS: use tls implicit, or none for a server in your own network")
    await _command(lines, "STARTTLS", 220)
    lines.check_empty()


async def _deliver(lines: _StreamLines, server: MailServer, mail: Mail, *, greeted: bool) -> None:
    if not greeted:
        await _expect(lines, 220)
    features = await _hello(lines)
    if server.username is not None:
        await _log_in(lines, server, features.get("AUTH", ""))
    await _command(lines, f"MAIL FROM:<{mail.sender}>", 250)
    refused = [reply.text for to in mail.to if (reply := await _ask(lines, f"RCPT TO:<{to}>")).code not in (250, 251)]
    if len(refused) == len(mail.to):
        raise MailRefused(f"it accepts no recipient: {refused[0]}")
    await _command(lines, "DATA", 354)
    await lines.send(_stuffed(mail.content) + b".\r\n")
    await _expect(lines, 250)
    try:
        await _ask(lines, "QUIT")
    except (MailRefused, OSError):
        return  # the mail is accepted


async def _hello(lines: _Lines) -> dict[str, str]:
    """The extensions of the server, with their parameters."""
    host = socket.gethostname()
    reply = await _command(lines, f"EHLO {host if _HELLO.fullmatch(host) else 'localhost'}", 250)
    pairs = (line.upper().replace("=", " ", 1).partition(" ") for line in reply.lines[1:])
    return {name: rest for name, _, rest in pairs}


async def _log_in(lines: _Lines, server: MailServer, offered: str) -> None:
    user, password = (server.username or "").encode(), (server.password or "").encode()
    methods = offered.split()
    if "PLAIN" in methods:
        reply = await _ask(lines, "AUTH PLAIN " + _base64(b"\0" + user + b"\0" + password))
    elif "LOGIN" in methods:
        reply = await _ask(lines, "AUTH LOGIN")
        for part in (user, password):
            if reply.code == 334:
                reply = await _ask(lines, _base64(part))
    else:
        raise MailRefused("it offers no login with a password (AUTH PLAIN or LOGIN)")
    if reply.code != 235:
        raise MailRefused(f"it refused the login: {reply.text}")


async def _command(lines: _Lines, text: str, expected: int) -> _Reply:
    await lines.send(text.encode() + b"\r\n")
    return await _expect(lines, expected, text.partition(" ")[0])


async def _ask(lines: _Lines, text: str) -> _Reply:
    await lines.send(text.encode() + b"\r\n")
    return await _reply(lines)


async def _expect(lines: _Lines, expected: int, command: str = "") -> _Reply:
    reply = await _reply(lines)
    if reply.code != expected:
        after = f" to {command}" if command else ""
        raise MailRefused(f"it answered{after} with {reply.text}")
    return reply


async def _reply(lines: _Lines) -> _Reply:
    texts: list[str] = []
    while len(texts) < MOST_LINES:
        line = (await lines.receive()).decode(errors="replace").rstrip("\r\n")
        code, mark, text = line[:3], line[3:4], line[4:]
        if not code.isdecimal() or mark not in ("", " ", "-"):
            raise MailRefused("it does not answer like an SMTP server")
        texts.append(text)
        if mark != "-":
            return _Reply(int(code), texts)
    raise MailRefused("its answer does not end")


def _stuffed(content: bytes) -> bytes:
    """A line that begins with a dot gets a second one, because a dot alone ends the mail."""
    ended = content if content.endswith(b"\r\n") else content + b"\r\n"
    return re.sub(rb"(?m)^\.", b"..", ended)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
