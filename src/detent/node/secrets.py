"""The secrets of a worker: its master keys, and what its environment provides. Checked once, before it joins."""

from __future__ import annotations

import os
from collections.abc import Collection

from detent.domain.secret_keys import read_master_keys
from detent.errors import UsageError
from detent.runtime.envelope import MasterKeys
from detent.settings.settings import Settings
from detent.store import Store
from detent.worker.secret_providers import SecretProviders
from detent.worker.secrets import SecretValues


async def secret_values(settings: Settings, roles: Collection[str], store: Store) -> SecretValues:
    """Raises UsageError if this worker could not open the secrets of its cluster."""
    keys = MasterKeys(read_master_keys(settings.secret_key))
    if "worker" not in roles:
        return SecretValues(store.secrets, keys)
    missing = keys.missing(await store.secrets.key_ids())
    if missing:
        raise UsageError(_missing(missing, keys))
    providers = SecretProviders(
        settings.secret_environment, settings.secret_directory, await _tenants(settings, store), dict(os.environ)
    )
    return SecretValues(store.secrets, keys, providers)


def _missing(missing: Collection[str], keys: MasterKeys) -> str:
    what = f"This cluster has secrets under the key {', '.join(missing)}"
    if keys.newest is None:
        return f"{what}, and DETENT_SECRET_KEY is not set: give this worker the key that the other nodes have."
    return (
        f"{what}, and DETENT_SECRET_KEY has {', '.join(keys.ids)}: add the missing key after the others, separated by "
        "a comma; `detent secret rotate-key` makes it unnecessary."
    )


async def _tenants(settings: Settings, store: Store) -> frozenset[int]:
    opened = settings.secret_environment or settings.secret_directory
    found = {name: await store.tenants.number(name) for name in settings.secret_provider_tenants if opened}
    missing = [name for name, number in found.items() if number is None]
    if missing:
        raise UsageError(
            f"secret_provider_tenants names {', '.join(missing)}, and there is no such tenant: give names that "
            "`detent tenant list` shows, such as default."
        )
    return frozenset(number for number in found.values() if number is not None)
