"""The TLS contexts of calls with certificates of their own: a client certificate, or the authorities of the server.

A context takes milliseconds to make, so it is kept for the next call with the same certificates. aiohttp shares
connections only between calls with the same context, so no call uses a connection that was opened with the certificate
of another job.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections import OrderedDict
from datetime import UTC, datetime
from typing import NamedTuple

from detent.domain.job import TargetTls
from detent.domain.run import Failed
from detent.domain.secret_ref import SecretRef
from detent.runtime.certificates import CertificateFault, CertificatePair, client_context, read_pair
from detent.runtime.clock import monotonic

MOST_CONTEXTS = 200
# A context holds a private key, so one that is not used is not kept for long.
KEPT_SECONDS = 60.0


class _Kept(NamedTuple):
    context: ssl.SSLContext
    pair: CertificatePair | None
    used_at: float


class TargetCertificates:
    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._sweep: asyncio.TimerHandle | None = None

    async def context(self, tls: TargetTls) -> ssl.SSLContext | Failed:
        """For a call of a target with these certificates, which were filled in; or why they cannot be used. A retry may
        help: the secret may have another value by then."""
        if isinstance(tls.client_certificate, SecretRef) or isinstance(tls.ca, SecretRef):
            return Failed("target.tls refers to a secret, and only a worker of a cluster can fill it in.")
        certificate, ca = (None if text is None else text.encode() for text in (tls.client_certificate, tls.ca))
        digest = hashlib.sha256(b"\0".join(part or b"" for part in (certificate, ca))).digest()
        try:
            known = self._kept.get(digest)
            context, pair = known[:2] if known is not None else await asyncio.to_thread(_made, certificate, ca)
            if pair is not None:
                pair.check_time(datetime.now(UTC))
        except CertificateFault as fault:
            place = "ca" if fault.part == "authorities" else "client_certificate"
            return Failed(f"The certificates in target.tls.{place} could not be used: {fault.why}.")
        self._keep(digest, _Kept(context, pair, monotonic()))
        return context

    def _keep(self, digest: bytes, kept: _Kept) -> None:
        """A call that made the same context at the same time may have kept its own; the newest counts."""
        self._kept[digest] = kept
        self._kept.move_to_end(digest)
        while len(self._kept) > MOST_CONTEXTS:
            self._kept.popitem(last=False)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget)

    def _forget(self) -> None:
        self._sweep = None
        before = monotonic() - KEPT_SECONDS
        while self._kept and next(iter(self._kept.values())).used_at <= before:
            self._kept.popitem(last=False)
        if self._kept:
            self._sweep = asyncio.get_running_loop().call_later(KEPT_SECONDS / 4, self._forget)

    def close(self) -> None:
        self._kept.clear()
        if self._sweep is not None:
            self._sweep.cancel()


def _made(certificate: bytes | None, ca: bytes | None) -> tuple[ssl.SSLContext, CertificatePair | None]:
    pair = None if certificate is None else read_pair(certificate, certificate)
    return client_context(pair, ca), pair
