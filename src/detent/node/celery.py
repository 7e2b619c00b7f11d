"""Which Celery tasks a worker sends: to brokers that jobs name if Celery is installed, and of the apps that the
operator opened to tenants. Decided once, before it joins the cluster."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from typing import NamedTuple

from detent.domain.serving import CELERY
from detent.errors import UsageError
from detent.settings.settings import Settings
from detent.store import Store


class CeleryAccess(NamedTuple):
    """`installed`: this process can send tasks. `apps`: each with the number of the tenant it is open to."""

    installed: bool = False
    apps: tuple[tuple[str, int], ...] = ()

    @property
    def capabilities(self) -> list[str]:
        return [CELERY, *(f"{CELERY}:{app}@{tenant}" for app, tenant in self.apps)] if self.installed else []


async def celery_access(settings: Settings, roles: Collection[str], store: Store) -> CeleryAccess:
    if "worker" not in roles:
        return CeleryAccess()
    if find_spec("celery") is None:
        if settings.celery_apps:
            raise UsageError("--celery-apps is given, and Celery is not installed: install `detent[celery]`.")
        return CeleryAccess()
    named = [each.rpartition("@") for each in settings.celery_apps]
    found = [(app, tenant, await store.tenants.number(tenant)) for app, _, tenant in named]
    missing = [tenant for _, tenant, number in found if number is None]
    if missing:
        raise UsageError(
            f"--celery-apps names {', '.join(missing)}, and there is no such tenant: give names that "
            "`detent tenant list` shows, such as default."
        )
    return CeleryAccess(True, tuple((app, number) for app, _, number in found if number is not None))
