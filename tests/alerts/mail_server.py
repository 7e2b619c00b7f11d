"""A real SMTP server: with STARTTLS or TLS from the start, and a login that it requires."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Literal, NamedTuple

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.support.certificates import Issued

USER, PASSWORD = "detent", "correct horse"


class Delivered(NamedTuple):
    sender: str
    to: list[str]
    message: EmailMessage
    encrypted: bool

    @property
    def text(self) -> str:
        return str(self.message.get_content())


class Mailbox:
    """`replies` are answers to DATA, in order; 250 when empty. `refused` are recipients that it does not know."""

    def __init__(self) -> None:
        self.port = 0
        self.mails: list[Delivered] = []
        self.replies: list[str] = []
        self.refused: set[str] = set()

    async def handle_RCPT(  # noqa: N802 - the name is aiosmtpd's
        self, server: Any, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Session, envelope: Envelope) -> str:  # noqa: N802 - as above
        if self.replies:
            return self.replies.pop(0)
        content = envelope.content
        assert isinstance(content, bytes) and envelope.mail_from is not None
        message = message_from_bytes(content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        encrypted = server.transport.get_extra_info("ssl_object") is not None
        self.mails.append(Delivered(envelope.mail_from, list(envelope.rcpt_tos), message, encrypted))
        return "250 OK"


def _authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
    good = isinstance(data, LoginPassword) and (data.login, data.password) == (USER.encode(), PASSWORD.encode())
    return AuthResult(success=good, handled=False)


@asynccontextmanager
async def mail_server(
    folder: Path, issued: Issued, tls: Literal["starttls", "implicit", "none"], *, plain: bool = True
) -> AsyncIterator[Mailbox]:
    """`plain`: whether it offers AUTH PLAIN; else only LOGIN."""
    mailbox, context = Mailbox(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = folder / "mail.pem"
    path.write_text(issued.text)
    context.load_cert_chain(path)
    options: dict[str, Any] = {"hostname": "mail.test"}
    if tls != "none":
        options |= {"authenticator": _authenticate, "auth_required": True, "auth_require_tls": tls == "starttls"}
        options |= {"auth_exclude_mechanism": [] if plain else ["PLAIN"]}
    if tls == "starttls":
        options |= {"tls_context": context, "require_starttls": True}

    def protocol() -> SMTP:
        with warnings.catch_warnings():  # it does not know of TLS from the start, and warns of a login without
            warnings.simplefilter("ignore")
            return SMTP(mailbox, **options)

    server = await asyncio.get_running_loop().create_server(
        protocol, "127.0.0.1", 0, ssl=context if tls == "implicit" else None
    )
    mailbox.port = server.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        server.close()
