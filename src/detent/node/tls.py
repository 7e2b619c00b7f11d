"""The certificate of the API server, read again when its files change.

Every new connection gets the newest context; those that exist keep theirs, so a renewal closes none. Files that cannot
be used are logged, and the certificate before them stays. The authorities of clients are read again in the same way:
a new context also forgets the sessions that clients could resume.
"""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from detent.errors import UsageError
from detent.node.tls_alerts import AlertingContext
from detent.runtime.certificates import CertificateFault, CertificatePair, instant, read_pair, server_context
from detent.runtime.clock import monotonic
from detent.runtime.service import Loop
from detent.settings.settings import Settings
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics

log = logger("tls")

LOOK_SECONDS = 5.0
REMINDED_EVERY = 86_400.0


class TlsFiles(NamedTuple):
    cert: Path
    key: Path
    client_ca: Path | None


class ServerTls:
    def __init__(self, files: TlsFiles, metrics: Metrics) -> None:
        """Raises UsageError if the files cannot be used."""
        self._files = files
        self._metrics = metrics
        content = _read(files)
        self._seen: Contents | str = content
        self._reminded_at = -REMINDED_EVERY
        self._pair, self.context = self._loaded(content)
        self._loop = Loop("certificate", self._look)
        self._note()

    async def __aenter__(self) -> ServerTls:
        self._loop.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._loop.abort()

    def reload(self) -> None:
        """Look at the files now."""
        self._loop.wake()

    async def _look(self) -> float:
        content = await asyncio.to_thread(_read_or_fault, self._files)
        if content != self._seen:
            self._seen = content
            try:
                if isinstance(content, str):
                    raise UsageError(content)
                self._pair, self.context = self._loaded(content)
            except UsageError as error:
                log.error("the certificate was not reloaded, so the one before stays in use", error=error.message)
            else:
                self._reminded_at = -REMINDED_EVERY
                log.info("certificate reloaded", subject=self._pair.subject, expires=instant(self._pair.not_after))
        self._note()
        return LOOK_SECONDS

    def _loaded(self, content: Contents) -> tuple[CertificatePair, ssl.SSLContext]:
        certificate, key, client_ca = content
        try:
            pair = read_pair(certificate, key)
            pair.check_time(datetime.now(UTC))
            return pair, server_context(pair, client_ca, AlertingContext)
        except CertificateFault as fault:
            setting = {"certificate": "tls_cert", "key": "tls_key", "authorities": "tls_client_ca"}[fault.part]
            path = getattr(self._files, setting.removeprefix("tls_"))
            raise UsageError(f"{setting} is {path}: {fault}.") from fault

    def _note(self) -> None:
        """Report until when the certificate can be used, and once a day that this is soon."""
        self._metrics.certificate_expires_at = self._pair.not_after.timestamp()
        if self._pair.expires_soon(datetime.now(UTC)) and monotonic() >= self._reminded_at + REMINDED_EVERY:
            self._reminded_at = monotonic()
            log.warning(
                f"The certificate expires on {instant(self._pair.not_after)}: renew it; the new file is read when it "
                "is there.",
                file=str(self._files.cert),
            )


# The certificate, its key, and the authorities of clients.
Contents = tuple[bytes, bytes, bytes | None]


def server_tls(settings: Settings, metrics: Metrics) -> ServerTls:
    """Where `settings.tls_given`. Raises UsageError if the settings or their files cannot be used."""
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if cert is not None and key is not None:
        return ServerTls(TlsFiles(cert, key, client_ca), metrics)
    given = "tls_cert" if cert is not None else "tls_key" if key is not None else "tls_client_ca"
    missing = [name for name, path in (("tls_cert", cert), ("tls_key", key)) if path is None]
    raise UsageError(f"{given} is set without {' and '.join(missing)}: HTTPS needs both files, tls_cert and tls_key.")


def _read(files: TlsFiles) -> Contents:
    certificate, key = _content("tls_cert", files.cert), _content("tls_key", files.key)
    return certificate, key, None if files.client_ca is None else _content("tls_client_ca", files.client_ca)


def _read_or_fault(files: TlsFiles) -> Contents | str:
    try:
        return _read(files)
    except UsageError as error:
        return error.message


def _content(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{setting} is {path}, which cannot be read ({error.strerror}): check its path and owner."
        ) from error
