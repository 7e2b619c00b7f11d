"""Fills the values of secrets into calls, in the process that calls the target and nowhere else.

Values are kept for `VALID_SECONDS` after they were read, so that a busy worker reads them rarely and uses a new value
soon. While the database does not answer, the last ones hold for `LAST_KNOWN_SECONDS`, as allow lists do
(targets/policies.py); then a run waits for the database. A job without references, of a tenant without a signing
secret, costs a comparison.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from detent.domain.job import Definition, HttpTarget
from detent.domain.masking import Mask, forms_of
from detent.domain.references import call_references, target_references, with_values
from detent.domain.run import Call
from detent.domain.secret_ref import provider_of
from detent.domain.webhooks import KEY_FORM, Signing, read_signing_key
from detent.errors import DetentError
from detent.runtime.clock import monotonic
from detent.runtime.envelope import MasterKeys, SecretKeyError
from detent.runtime.service import Batcher
from detent.store.db import PoolName
from detent.store.secrets import SealedVersion, SecretStore
from detent.store.tenant_wall import walled
from detent.telemetry.log import logger
from detent.worker.secret_providers import SecretFault, SecretProviders

log = logger("secrets")

FRESH_SECONDS = 1.0
VALID_SECONDS = 2.0
# A call waits this long for a reading at most, while the last values may still be used.
PATIENCE_SECONDS = 0.5
LAST_KNOWN_SECONDS = 60.0
MAX_SECRETS = 1_000

Key = tuple[int, str]


class SecretReader(Protocol):
    """What the store offers."""

    async def values(self, wanted: Sequence[Key]) -> Sequence[SealedVersion]: ...

    async def signing(self) -> dict[int, str]: ...


class PooledSecrets:
    """Reads for requests, with their connections. One statement serves the requests of several tenants, and names
    each of them, so it is not restricted to one."""

    def __init__(self, store: SecretStore, pool: PoolName) -> None:
        self._store = store
        self._pool = pool

    async def values(self, wanted: Sequence[Key]) -> Sequence[SealedVersion]:
        with walled(None):
            return await self._store.values(wanted, pool=self._pool)

    async def signing(self) -> dict[int, str]:
        with walled(None):
            return await self._store.signing(pool=self._pool)


class OpenVersion:
    """A value in memory, and until when it is valid."""

    __slots__ = ("_forms", "_until", "value")

    def __init__(self, value: str, until: float | None = None) -> None:
        self.value = value
        self._until = until
        self._forms: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return "OpenVersion()"

    @property
    def forms(self) -> tuple[str, ...]:
        if self._forms is None:
            self._forms = forms_of(self.value)
        return self._forms

    def valid(self, now: float) -> bool:
        return self._until is None or now < self._until


class OpenSecret(NamedTuple):
    """The versions of a secret, the newest first, and when they were read."""

    versions: tuple[OpenVersion, ...]
    read_at: float


class SecretValues:
    """One for a process. Must be used inside a running event loop."""

    def __init__(
        self,
        reader: SecretReader,
        keys: MasterKeys,
        providers: SecretProviders | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """Without `providers`, references to them are left as they are: for workers that pull, which have their own."""
        self._reader = reader
        self._keys = keys
        self._providers = providers
        self._now = now
        self._open: OrderedDict[Key, OpenSecret] = OrderedDict()
        self._reading: dict[Key, asyncio.Task[OpenSecret]] = {}
        self._read_stored = Batcher(self._read_all)
        self._signing: dict[int, str] = {}
        self._signing_read_at = -LAST_KNOWN_SECONDS
        self._signing_known = False
        self._signing_task: asyncio.Task[None] | None = None
        self._sweep: asyncio.TimerHandle | None = None

    def concern(self, definition: Definition) -> bool:
        """Whether calls of this job may need a secret."""
        if definition.refers:
            return True
        if type(definition.spec.target) is not HttpTarget:
            return False
        age = self._now() - self._signing_read_at
        if age >= VALID_SECONDS:
            return True
        if age >= FRESH_SECONDS:
            self._start_reading_signing()
        return definition.tenant in self._signing

    async def fill(self, call: Call, definition: Definition, at: datetime) -> Call:
        """The call with values and signing keys; or SecretFault, or an error of the store if it must wait."""
        signing = await self._signing_of(definition)
        names = {one.name for one in call_references(definition.spec)} if definition.refers else set()
        names |= {signing} if signing is not None else set()
        filled, found = await self._filled(call, definition.tenant, names)
        if signing is None:
            return filled
        return msgspec.structs.replace(filled, signing=Signing(_signing_keys(signing, found[signing]), at))

    async def fill_for_pull(self, call: Call, definition: Definition) -> Call:
        """The call for a worker that pulls, which signs nothing."""
        names = {one.name for one in call_references(definition.spec) if one.path[0] != "signing"}
        return (await self._filled(call, definition.tenant, names))[0]

    async def fill_target(self, call: Call) -> Call:
        """The call with values in its target. What it sends is left as it is: it may be shown to others."""
        names = {one.name for one in target_references(call.target)}
        filled, _ = await self._filled(msgspec.structs.replace(call, payload=None), call.tenant, names)
        return msgspec.structs.replace(filled, payload=call.payload)

    async def values_of(self, tenant: int, name: str) -> tuple[str, ...]:
        """The valid values of one secret, the newest first; or SecretFault, or an error of the store."""
        return tuple(one.value for one in await self._versions(tenant, name))

    async def _filled(
        self, call: Call, tenant: int, names: Iterable[str]
    ) -> tuple[Call, dict[str, tuple[OpenVersion, ...]]]:
        """All valid versions are masked: the target may still know a former one."""
        found = {name: await self._versions(tenant, name) for name in names if self._reads(name)}
        if not found:
            return call, found
        newest = {name: versions[0].value for name, versions in found.items()}
        target, payload = with_values(call.target, call.payload, newest.get)
        shown = [one for versions in found.values() for one in versions]
        mask = Mask((one.value for one in shown), (one.forms for one in shown)).joined(call.mask)
        return msgspec.structs.replace(call, target=target, payload=payload, mask=mask, filled=True), found

    def _reads(self, name: str) -> bool:
        return self._providers is not None or provider_of(name)[0] == "stored"

    # --- values ---

    async def _versions(self, tenant: int, name: str) -> tuple[OpenVersion, ...]:
        """The valid versions of a secret, the newest first; at least one."""
        key = (tenant, name)
        known = self._open.get(key)
        age = LAST_KNOWN_SECONDS if known is None else self._now() - known.read_at
        if age >= VALID_SECONDS or known is None:
            known = await self._renewed(key, known if age < LAST_KNOWN_SECONDS else None)
        now = self._now()
        valid = tuple(one for one in known.versions if one.valid(now))
        if not valid:
            raise SecretFault(name, "there is none of this name; it was deleted after the job was registered")
        return valid

    async def _renewed(self, key: Key, last: OpenSecret | None) -> OpenSecret:
        reading = self._start_reading(key)
        if last is None:
            return await asyncio.shield(reading)
        await asyncio.wait([reading], timeout=PATIENCE_SECONDS)
        if not reading.done() or isinstance(reading.exception(), DetentError):
            return last  # the database does not answer
        return reading.result()

    def _start_reading(self, key: Key) -> asyncio.Task[OpenSecret]:
        """One reading for all calls that need it; a call that is cancelled does not cancel it for the others."""
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.create_task(self._read(key))
            reading.add_done_callback(lambda task: self._read_ended(key, task))
        return reading

    def _read_ended(self, key: Key, task: asyncio.Task[OpenSecret]) -> None:
        del self._reading[key]
        if task.cancelled() or task.exception() is not None:  # read here: perhaps nothing waits for it any more
            return
        self._open[key] = task.result()
        self._open.move_to_end(key)
        while len(self._open) > MAX_SECRETS:
            self._open.popitem(last=False)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(LAST_KNOWN_SECONDS, self._forget)

    def _forget(self) -> None:
        """No value stays in memory that is too old to be used."""
        oldest = self._now() - LAST_KNOWN_SECONDS
        for key in [key for key, secret in self._open.items() if secret.read_at <= oldest]:
            del self._open[key]
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(LAST_KNOWN_SECONDS / 4, self._forget) if self._open else None

    async def _read(self, key: Key) -> OpenSecret:
        began, (tenant, name) = self._now(), key
        if provider_of(name)[0] == "stored":
            return OpenSecret(tuple(self._opened(one, began) for one in await self._read_stored(key)), began)
        assert self._providers is not None
        return OpenSecret((OpenVersion(await self._providers.read(tenant, name)),), began)

    async def _read_all(self, keys: Sequence[Key]) -> list[list[SealedVersion]]:
        found: dict[Key, list[SealedVersion]] = {key: [] for key in keys}
        for version in await self._reader.values(list(found)):
            found[version.place.tenant, version.place.name].append(version)
        return [found[key] for key in keys]

    def _opened(self, sealed: SealedVersion, began: float) -> OpenVersion:
        try:
            value = self._keys.open(sealed.place, sealed.envelope)
        except SecretKeyError as error:
            raise SecretFault(sealed.place.name, str(error)) from None
        return OpenVersion(value, None if sealed.seconds_left is None else began + sealed.seconds_left)

    # --- which tenants sign all their calls ---

    async def _signing_of(self, definition: Definition) -> str | None:
        """The secret that signs calls of this job. Without a reading, a call waits: it must not go unsigned."""
        if definition.spec.signing is not None:
            return definition.spec.signing.secret
        if type(definition.spec.target) is not HttpTarget:
            return None
        age = self._now() - self._signing_read_at
        if age >= VALID_SECONDS:
            reading = self._start_reading_signing()
            if self._signing_known:
                await asyncio.wait([reading], timeout=PATIENCE_SECONDS)
            else:
                await asyncio.shield(reading)
        return self._signing.get(definition.tenant)

    def _start_reading_signing(self) -> asyncio.Task[None]:
        if self._signing_task is None:
            self._signing_task = asyncio.create_task(self._read_signing())
            self._signing_task.add_done_callback(self._signing_read)
        return self._signing_task

    async def _read_signing(self) -> None:
        began = self._now()
        self._signing = await self._reader.signing()
        self._signing_read_at, self._signing_known = began, True

    def _signing_read(self, task: asyncio.Task[None]) -> None:
        self._signing_task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("signing secrets of the tenants not read", error=str(error))


def _signing_keys(name: str, versions: Sequence[OpenVersion]) -> tuple[bytes, ...]:
    keys = tuple(key for key in (read_signing_key(one.value) for one in versions) if key is not None)
    if not keys:
        raise SecretFault(name, f"it cannot sign, which needs {KEY_FORM}")
    return keys
