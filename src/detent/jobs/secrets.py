"""Create, replace, rotate and delete secrets, and put them under a new master key. Values go in and never come out."""

from __future__ import annotations

from datetime import timedelta

from detent.contract.secret import RewrappedSecrets, Secret
from detent.domain.secret_ref import value_fault
from detent.domain.webhooks import KEY_FORM, PREFIX, read_signing_key
from detent.errors import Conflict, NotFound, UsageError
from detent.runtime.envelope import Envelope, MasterKeys, SecretKeyError, SecretPlace
from detent.store import Store
from detent.store.secrets import SealedVersion, SecretUsers

MAX_SECRETS = 1_000
MAX_VERSIONS = 10
NAMED_JOBS = 5
REWRAPPED_AT_ONCE = 500
NOW = timedelta(0)
NO_KEY = (
    "This server has no secret key, so it cannot encrypt: set DETENT_SECRET_KEY to what `detent secret generate-key` "
    "prints, on all nodes."
)


class SecretNotFound(NotFound):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is no secret {name!r}: `detent secret list` shows the existing ones.")


class SecretCommands:
    def __init__(self, store: Store, keys: MasterKeys) -> None:
        self._secrets = store.secrets
        self._keys = keys

    async def set(self, tenant: int, name: str, value: object, *, by: str | None = None) -> Secret:
        """Create a secret, or replace its value: the former ones are gone at once."""
        text = _checked(value)
        if await self._secrets.count(tenant) >= MAX_SECRETS and await self._secrets.get(tenant, name) is None:
            raise Conflict(f"The tenant has {MAX_SECRETS} secrets, which is the limit: delete some.")
        return await self._write(tenant, name, text, NOW, by, create=True)

    async def rotate(
        self, tenant: int, name: str, value: object, keep: timedelta = NOW, *, by: str | None = None
    ) -> Secret:
        """Give a secret a new value. The former ones stay valid for `keep`: calls are signed with all valid ones."""
        return await self._write(tenant, name, _checked(value), keep, by, create=False)

    async def _write(
        self, tenant: int, name: str, value: str, keep: timedelta, by: str | None, *, create: bool
    ) -> Secret:
        if self._keys.newest is None:
            raise Conflict(NO_KEY)

        def seal(version: int) -> Envelope:
            return self._keys.seal(SecretPlace(tenant, name, version), value)

        valid = await self._secrets.write(tenant, name, seal, keep=keep, create=create, by=by, most=MAX_VERSIONS)
        if valid is None:
            raise SecretNotFound(name)
        if valid > MAX_VERSIONS:
            raise Conflict(
                f"The secret {name!r} has {MAX_VERSIONS} valid versions, which is the limit: wait until some expire, "
                "or rotate without --keep."
            )
        return await self.get(tenant, name)

    async def all(self, tenant: int) -> list[Secret]:
        return await self._secrets.all(tenant, MAX_SECRETS)

    async def get(self, tenant: int, name: str) -> Secret:
        found = await self._secrets.get(tenant, name)
        if found is None:
            raise SecretNotFound(name)
        return found

    async def delete(self, tenant: int, name: str) -> None:
        """Delete a secret that no job refers to."""
        users = await self._secrets.delete(tenant, name, NAMED_JOBS + 1)
        if users is None:
            raise SecretNotFound(name)
        if any(users):
            raise Conflict(_in_use(name, users))

    async def rewrap(self) -> RewrappedSecrets:
        """Put one batch of secrets under the newest master key. Values are not decrypted, and calls go on meanwhile."""
        newest = self._keys.newest
        if newest is None:
            raise Conflict(NO_KEY)
        used = await self._secrets.key_ids()
        missing = self._keys.missing(used)
        if missing:
            raise Conflict(
                f"Some secrets are under the key {', '.join(missing)}, which this server does not have: add that key "
                "after the new one in DETENT_SECRET_KEY, separated by a comma, until this has ended."
            )
        old = await self._secrets.under_other_keys(newest, REWRAPPED_AT_ONCE)
        changed = await self._secrets.rewrap([(one, self._rewrapped(one)) for one in old])
        used = await self._secrets.key_ids()
        return RewrappedSecrets(key_id=newest, rewrapped=changed, remaining=sum(used.values()) - used.get(newest, 0))

    def _rewrapped(self, old: SealedVersion) -> Envelope:
        try:
            return self._keys.rewrap(old.place, old.envelope)
        except SecretKeyError as error:
            raise Conflict(
                f"The secret {old.place.name!r} of the tenant {old.place.tenant} cannot be put under the new key: "
                f"{error}. Set it again, or delete it."
            ) from error


def _checked(value: object) -> str:
    fault = value_fault(value)
    if fault is not None:
        raise UsageError(fault, "/value")
    text = str(value)
    if text.startswith(PREFIX) and read_signing_key(text) is None:
        raise UsageError(f"The value begins with {PREFIX} but cannot sign: give {KEY_FORM}.", "/value")
    return text


def _in_use(name: str, users: SecretUsers) -> str:
    named = ", ".join(users.jobs[:NAMED_JOBS]) + (" and others" if len(users.jobs) > NAMED_JOBS else "")
    if users.jobs:
        what = f"the job {named} refers" if len(users.jobs) == 1 else f"the jobs {named} refer"
        return f"The secret {name!r} is in use: {what} to it; change or delete them first."
    if users.rules:
        return (
            f"The secret {name!r} is in use: the alert rule {users.rules[0]} refers to it; change that with `detent "
            "alert-rule edit`, or delete it."
        )
    if users.forwards:
        return (
            f"The secret {name!r} is in use: the dead-letter topic of its tenant refers to it; change that with "
            "`detent tenant dead-letter-topic`."
        )
    return (
        f"The secret {name!r} is in use: it signs the calls of its tenant; choose another with `detent tenant signing`."
    )
